"""``tasc wire``: read the bytes of a file as the collector would, and show what came of it.

``json``, ``sse``, ``ndjson`` and ``prometheus`` print one JSON line per value, event, row or sample; a refusal is one
JSON line with ``refused``, and exit code 3. ``answer`` prints one JSON object with the verdict on a captured answer.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from tasc_collector import limits as bounds
from tasc_collector.errors import InputError, WireError
from tasc_collector.invocation.capture import CapturedAnswer, CaptureKind, read_capture
from tasc_collector.runtimes.flags import flags_from_value
from tasc_collector.runtimes.profile import Framing, Route
from tasc_collector.wire.json import JsonLimits, JsonValue, parse_json
from tasc_collector.wire.ndjson import NdjsonDecoder
from tasc_collector.wire.prometheus import parse_prometheus
from tasc_collector.wire.sse import SseDecoder
from tasc_pipeline.cli.common import EXIT_REFUSED, say

File = Annotated[Path, typer.Argument(help="File with the bytes; - reads standard input.")]
Hide = Annotated[bool, typer.Option("--hide", help="Print the length of each text in its place.")]


def register(app: typer.Typer) -> None:
    """Add the group to the command line."""
    group = typer.Typer(no_args_is_help=True, help="Read captured bytes as the collector would.")
    group.command("json")(show_json)
    group.command("sse")(show_sse)
    group.command("ndjson")(show_ndjson)
    group.command("prometheus")(show_prometheus)
    group.command("answer")(show_answer)
    app.add_typer(group, name="wire")


def show_json(file: File, hide: Hide = False) -> None:
    """Print the value of a JSON document."""
    limits = JsonLimits(max_depth=bounds.JSON_DEPTH_HARD)
    _lines(lambda: iter([{"value": _shown(parse_json(_bytes(file), limits), hide=hide)}]))


def show_sse(file: File, hide: Hide = False) -> None:
    """Print the events of a server-sent event stream."""

    def lines() -> Iterator[dict[str, Any]]:  # Any: JSON
        decoder = SseDecoder()
        count = 0
        for chunk in _chunks(_bytes(file)):
            for event in decoder.feed(chunk):
                count += 1
                data = _shown(event.data, hide=hide)
                yield {"event": event.event, "data": data, "id": event.id, "retry_ms": event.retry_ms}
        decoder.finish()
        _say_end(count, "events", incomplete=decoder.trailing_incomplete, more=f", {decoder.comments} comments")

    _lines(lines)


def show_ndjson(file: File, hide: Hide = False) -> None:
    """Print the rows of newline-delimited JSON."""

    def lines() -> Iterator[dict[str, Any]]:  # Any: JSON
        decoder = NdjsonDecoder()
        count = 0
        for chunk in _chunks(_bytes(file)):
            for row in decoder.feed(chunk):
                count += 1
                yield {"row": count, "value": _shown(row, hide=hide)}
        for row in decoder.finish():
            count += 1
            yield {"row": count, "value": _shown(row, hide=hide)}
        _say_end(count, "rows", incomplete=decoder.trailing_incomplete)

    _lines(lines)


def show_prometheus(file: File) -> None:
    """Print the samples of a Prometheus scrape."""

    def lines() -> Iterator[dict[str, Any]]:  # Any: JSON
        read = parse_prometheus(_bytes(file))
        count = 0
        for family in read.families.values():
            for sample in family.samples:
                count += 1
                yield {
                    "family": family.name,
                    "type": family.type,
                    "name": sample.name,
                    "labels": dict(sample.labels),
                    "value": sample.value,
                    "timestamp_ms": sample.timestamp_ms,
                }
        say(
            f"{count} samples; left out: {read.non_finite} not finite, {read.native_histograms} native histograms, "
            f"{read.repeated} repeated"
        )

    _lines(lines)


def show_answer(
    file: File,
    runtime: Annotated[str, typer.Option(help="Registered runtime, or with --flags any name.")],
    route: Annotated[Route, typer.Option(help="Route that was called.")],
    framing: Annotated[Framing, typer.Option(help="How the answer is framed.")],
    build: Annotated[str | None, typer.Option(help="Build; the pinned one by default.")] = None,
    raw_http: Annotated[bool, typer.Option("--raw-http", help="The file begins with the status line.")] = False,
    cut: Annotated[bool, typer.Option("--cut", help="The connection broke where the file ends.")] = False,
    flags: Annotated[Path | None, typer.Option(help="JSON file with the dialect's flags.")] = None,
    model: Annotated[str | None, typer.Option(help="Model that was asked for; by default the one it names.")] = None,
    choices: Annotated[int, typer.Option(min=1, help="Choices that were asked for.")] = 1,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Token limit of the request.")] = None,
    show: Annotated[bool, typer.Option("--show", help="Print the answer's text too.")] = False,
) -> None:
    """Print the verdict on one captured answer, with its finish reason, usage and timeline."""
    kind = CaptureKind(
        runtime,
        route,
        framing,
        build=build,
        raw_http=raw_http,
        cut=cut,
        model=model,
        choices=choices,
        max_tokens=max_tokens,
        flags=None if flags is None else flags_from_value(parse_json(_bytes(flags)), where=flags.name),
    )
    _print(_answer_object(read_capture(_bytes(file), kind), show=show))


def _answer_object(read: CapturedAnswer, *, show: bool) -> dict[str, Any]:  # Any: JSON
    answer, usage = read.answer, read.answer.usage
    shown: dict[str, Any] = {  # Any: JSON
        "outcome": answer.outcome,
        "reason": answer.reason,
        "wire_code": answer.wire_code,
        "finish_reason": answer.finish_reason,
        "usage": usage
        and {
            "input": usage.input,
            "output": usage.output,
            "total": usage.total,
            "cached": usage.cached,
            "reasoning": usage.reasoning,
            "flags": sorted(usage.flags),
        },
        "timeline": [{"at_byte": event.at_ns, "tokens": event.tokens, "kind": event.kind} for event in answer.events],
        "events_dropped": answer.events_dropped,
        "choices": answer.choices,
        "resolved_model": answer.resolved_model,
        "raw_finish_reason": answer.raw_finish_reason,
        "provider_timings": [item._asdict() for item in answer.provider_timings],
        "frames": answer.frames,
        "comments": answer.comments,
        "text_bytes": answer.text_bytes,
        "reasoning_bytes": answer.reasoning_bytes,
        "body_bytes": answer.body_bytes,
        "http": None
        if read.status is None and read.transport is None
        else {
            "status": read.status,
            "content_type": read.content_type,
            "refused": read.transport,
        },
    }
    return {**shown, "text": answer.text} if show else shown


def _bytes(file: Path) -> bytes:
    """The file, up to one byte more than the largest bound, so that a larger one is refused and not read."""
    most = bounds.JSON_BYTES_HARD + 1
    if str(file) == "-":
        return sys.stdin.buffer.read(most)
    try:
        with file.open("rb") as stream:
            return stream.read(most)
    except FileNotFoundError:
        raise InputError("there is no such file", where=file.name, way_out="give the path of a file") from None
    except IsADirectoryError:
        raise InputError("it is a folder", where=file.name, way_out="give the path of a file") from None


def _chunks(data: bytes) -> Iterator[bytes]:
    size = 64 * 1024
    return (data[start : start + size] for start in range(0, len(data), size))


def _lines(make: Callable[[], Iterator[dict[str, Any]]]) -> None:  # Any: JSON
    """Print each line as it comes; a refusal is the last line."""
    try:
        for line in make():
            _print(line)
    except WireError as error:
        _print({"refused": error.code, "offset": error.offset, "what": error.what, "way_out": error.way_out})
        raise typer.Exit(EXIT_REFUSED) from None


def _print(line: dict[str, Any]) -> None:  # Any: JSON
    typer.echo(orjson.dumps(line))


def _say_end(count: int, what: str, *, incomplete: bool, more: str = "") -> None:
    say(f"{count} {what}{more}" + ("; it ends inside another one, which is dropped" if incomplete else ""))


def _shown(value: JsonValue, *, hide: bool) -> JsonValue:
    """The value, or the same with ``"<n bytes>"`` in the place of each text."""
    if not hide:
        return value
    if isinstance(value, str):
        return f"<{len(value.encode())} bytes>"
    if isinstance(value, dict):
        return {key: _shown(item, hide=True) for key, item in value.items()}
    return [_shown(item, hide=True) for item in value] if isinstance(value, list) else value
