from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tasc_collector.errors import InputError
from tasc_pipeline.cli import wire

STREAM = (
    b'data: {"model":"m","choices":[{"index":0,"delta":{"content":"secret words"},"finish_reason":null}]}\n\n'
    b'data: {"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    b'data: {"model":"m","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}\n\n'
    b"data: [DONE]\n\n"
)


@pytest.fixture
def app() -> typer.Typer:
    built = typer.Typer()
    wire.register(built)
    built.command("other")(lambda: None)
    return built


def _run(app: typer.Typer, data: bytes, *words: str) -> tuple[int, list[dict[str, object]]]:
    result = CliRunner().invoke(app, ["wire", *words, "-"], input=data)
    return result.exit_code, [json.loads(line) for line in result.stdout.splitlines()]


def test_sse_prints_one_line_per_event(app: typer.Typer) -> None:
    code, lines = _run(app, b"event: x\nid: 1\ndata: a\ndata: b\n\ndata: c\n\ndata: lost\n", "sse")
    assert code == 0
    assert lines == [
        {"event": "x", "data": "a\nb", "id": "1", "retry_ms": None},
        {"event": "", "data": "c", "id": "1", "retry_ms": None},
    ]


def test_a_refusal_is_the_last_line_and_exit_code_3(app: typer.Typer) -> None:
    code, lines = _run(app, b"data: a\n\ndata: \xff\n\n", "sse")
    assert (code, lines[0]["data"], lines[1]["refused"]) == (3, "a", "invalid-utf8")
    code, lines = _run(app, b'{"a":1,"a":2}', "json")
    assert (code, [line["refused"] for line in lines]) == (3, ["duplicate-key"])
    assert lines[0]["way_out"]


def test_json_and_ndjson_print_values(app: typer.Typer) -> None:
    assert _run(app, b'{"a":[1,"x"]}', "json") == (0, [{"value": {"a": [1, "x"]}}])
    assert _run(app, b'{"a":1}\n{"a":2}', "ndjson") == (
        0,
        [{"row": 1, "value": {"a": 1}}, {"row": 2, "value": {"a": 2}}],
    )


def test_hide_prints_lengths_in_the_place_of_texts(app: typer.Typer) -> None:
    assert _run(app, '{"a":["é",1]}'.encode(), "json", "--hide") == (0, [{"value": {"a": ["<2 bytes>", 1]}}])
    assert _run(app, b"data: secret\n\n", "sse", "--hide")[1][0]["data"] == "<6 bytes>"


def test_prometheus_prints_samples(app: typer.Typer) -> None:
    code, lines = _run(app, b'# TYPE a gauge\na{y="2",x="1"} 1.5 7\na NaN\n', "prometheus")
    assert code == 0
    assert lines == [
        {
            "family": "a",
            "type": "gauge",
            "name": "a",
            "labels": {"x": "1", "y": "2"},
            "value": 1.5,
            "timestamp_ms": 7,
        }
    ]


def test_answer_prints_the_verdict_and_no_text(app: typer.Typer) -> None:
    words = ("answer", "--runtime", "vllm", "--route", "chatCompletions", "--framing", "sse")
    code, (line,) = _run(app, STREAM, *words)
    assert code == 0
    assert (line["outcome"], line["reason"], line["finish_reason"]) == ("completed", "completed", "stop")
    assert line["usage"] == {"input": 1, "output": 2, "total": 3, "cached": None, "reasoning": None, "flags": []}
    assert line["timeline"] == [{"at_byte": STREAM.index(b"\n\n") + 2, "tokens": None, "kind": "answer"}]
    assert "secret" not in json.dumps(line)
    assert _run(app, STREAM, *words, "--show")[1][0]["text"] == "secret words"
    assert _run(app, STREAM, *words, "--cut")[1][0]["outcome"] == "truncated"


def test_answer_takes_flags_of_a_runtime_that_is_not_registered(app: typer.Typer, tmp_path: Path) -> None:
    flags = tmp_path / "flags.json"
    flags.write_bytes(b'{"has_done": false}')
    words = ("answer", "--runtime", "newcomer", "--route", "chatCompletions", "--framing", "sse", "--flags", str(flags))
    assert _run(app, STREAM.removesuffix(b"data: [DONE]\n\n"), *words)[1][0]["outcome"] == "completed"


def test_a_missing_file_is_refused(app: typer.Typer, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["wire", "json", str(tmp_path / "none.json")])
    assert isinstance(result.exception, InputError)
    assert result.exception.way_out
