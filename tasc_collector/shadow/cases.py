"""The operator's case file, read line by line: our own JSON lines, OpenAI messages, OpenAI batch lines or plain text.

Cases live in memory only while a plan is made and while it is collected. Nothing here writes, and no error shows a line's
text: it names the file, the line number and the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from tasc_collector import limits
from tasc_collector.canonical import JsonValue
from tasc_collector.contracts.case_set import CaseEntry, CaseSetFile
from tasc_collector.contracts.envelope import Workload
from tasc_collector.errors import DigestMismatch, InputError, WireError
from tasc_collector.identity import PayloadKey
from tasc_collector.wire.json import JsonLimits, parse_json

CaseFormat = Literal["tasc", "openai-messages", "openai-batch", "text-lines"]
Message = tuple[str, str]
"""Role and content."""

_ROLES = ("system", "user", "assistant")
_CASE_LIMITS = JsonLimits(max_bytes=limits.CASE_MAX_BYTES)


@dataclass(frozen=True, slots=True)
class Case:
    """One case. ``repr`` shows its id only."""

    case_id: str
    group_id: str
    replicates: int
    messages: tuple[Message, ...] | None = field(repr=False)
    prompt: str | None = field(repr=False)
    max_tokens: int | None
    temperature: float | None
    top_p: float | None
    seed: int | None
    stop: tuple[str, ...] | None = field(repr=False)
    mode: str
    weight: float
    input_token_estimate: int | None
    slices: tuple[str, ...]
    route_signal: Mapping[str, JsonValue] | None

    @property
    def characters(self) -> int:
        """Length of the prompt or of all messages, in characters."""
        return len(self.prompt) if self.prompt is not None else sum(len(content) for _, content in self.messages or ())

    @property
    def length_bucket(self) -> str:
        """Power-of-two bucket of ``characters``."""
        low = 1 << max(self.characters.bit_length() - 1, 0)
        return f"chars-{low}-{2 * low - 1}"

    def identity(self, key: PayloadKey) -> str:
        """Keyed identity (bare hex) of the whole case."""
        return key.identify_json(
            "tasc/case-identity/v1",
            {
                "caseId": self.case_id,
                "groupId": self.group_id,
                "replicates": self.replicates,
                "messages": None if self.messages is None else [list(message) for message in self.messages],
                "prompt": self.prompt,
                "maxTokens": self.max_tokens,
                "temperature": self.temperature,
                "topP": self.top_p,
                "seed": self.seed,
                "stop": None if self.stop is None else list(self.stop),
                "mode": self.mode,
                "weight": self.weight,
                "inputTokenEstimate": self.input_token_estimate,
                "slices": list(self.slices),
                "routeSignal": None if self.route_signal is None else dict(self.route_signal),
            },
        ).value

    @property
    def workload(self) -> Workload:
        """The envelope's workload block."""
        return Workload(
            mode=self.mode, declared_traffic_weight=self.weight, input_token_estimate=self.input_token_estimate
        )


def read_cases(lines: Iterable[bytes], form: CaseFormat, *, where: str, replicates: int) -> tuple[Case, ...]:
    """Read all cases of a file.

    Args:
        lines: the file's lines as bytes, with or without line ends.
        form: how a line is written.
        where: the file's name, for errors.
        replicates: how often each case is sent to each profile where the line does not say.

    Raises:
        InputError: an empty file, too many cases, a repeated id, or a line that breaks a rule; names the line's number.
    """
    reader = _READERS[form]
    cases: list[Case] = []
    seen: set[str] = set()
    for number, raw in enumerate(lines, start=1):
        line = raw.rstrip(b"\r\n")
        if not line.strip():
            continue
        place = f"{where}:{number}"
        if len(cases) >= limits.MAX_CASES:
            raise InputError(
                f"more than {limits.MAX_CASES} cases", where=where, way_out="split the file into several studies"
            )
        case = reader(line, number, replicates, place)
        if case.case_id in seen:
            raise InputError(
                "this case id was used before", where=place, field="caseId", way_out="give every case its own id"
            )
        seen.add(case.case_id)
        cases.append(case)
    if not cases:
        raise InputError("the file holds no case", where=where, way_out="write one case per line")
    return tuple(cases)


def case_set(cases: Iterable[Case], study_id: str, key: PayloadKey, *, maximum_output_tokens: int) -> CaseSetFile:
    """The content-free list of cases that a plan commits to."""
    entries = [
        CaseEntry(
            case_id=case.case_id,
            group_id=case.group_id,
            replicates=case.replicates,
            identity=case.identity(key),
            length_bucket=case.length_bucket,
            maximum_output_tokens=min(case.max_tokens or maximum_output_tokens, maximum_output_tokens),
            weight=case.weight,
            input_token_estimate=case.input_token_estimate,
            slices=case.slices,
        )
        for case in cases
    ]
    return CaseSetFile(
        study_id=study_id, key_id=key.key_id, entries=tuple(sorted(entries, key=lambda entry: entry.case_id))
    )


def case_root(cases: CaseSetFile, key: PayloadKey) -> str:
    """Keyed root over a case set, in digest form."""
    return "sha256:" + key.identify_json("tasc/case-root/v1", cases.to_json()).value


def check_cases(cases: Iterable[Case], planned: CaseSetFile, key: PayloadKey, *, where: str) -> None:
    """Every case given must be one of the planned ones, unchanged. Fewer may be given: a later run may add the rest.

    Raises:
        DigestMismatch: a case is not in the plan's case set, or was changed since; names its id.
    """
    identities = {entry.case_id: entry.identity for entry in planned.entries}
    for case in cases:
        if identities.get(case.case_id) != case.identity(key):
            raise DigestMismatch(
                "this case is not the one that was planned",
                where=where,
                field=case.case_id,
                rule="case root of the plan",
                way_out="use the case file from which the plan was made, or seal and plan a new window",
            )


def _object(line: bytes, place: str) -> dict[str, JsonValue]:
    try:
        value = parse_json(line, _CASE_LIMITS)
    except WireError as error:
        raise InputError(f"not a JSON object ({error.code})", where=place, way_out="correct the line") from None
    if not isinstance(value, dict):
        raise InputError("not a JSON object", where=place, way_out="correct the line")
    return value


def _messages(value: JsonValue, place: str) -> tuple[Message, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= limits.MAX_MESSAGES:
        raise InputError(
            f"1 to {limits.MAX_MESSAGES} messages", where=place, field="messages", way_out="correct the line"
        )
    found: list[Message] = []
    for item in value:
        if not isinstance(item, dict) or set(item) != {"role", "content"} or item["role"] not in _ROLES:
            raise InputError(
                "a message has exactly a role (system, user, assistant) and a content",
                where=place,
                field="messages",
                way_out="correct the line",
            )
        found.append(
            (str(item["role"]), _content(item["content"], place, "messages.content", limits.MAX_MESSAGE_CHARACTERS))
        )
    return tuple(found)


def _content(value: JsonValue, place: str, name: str, most: int) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= most:
        raise InputError(f"a text of 1 to {most} characters", where=place, field=name, way_out="correct the line")
    return value


def _whole(value: JsonValue, place: str, name: str, low: int, high: int) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InputError(f"a whole number from {low} to {high}", where=place, field=name, way_out="correct the line")
    return value


def _number(value: JsonValue, place: str, name: str, low: float, high: float) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise InputError(f"a number from {low:g} to {high:g}", where=place, field=name, way_out="correct the line")
    return float(value)


def _stop(value: JsonValue, place: str) -> tuple[str, ...] | None:
    if value is None:
        return None
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list) or not 1 <= len(items) <= 8 or len({str(item) for item in items}) != len(items):
        raise InputError("one text or 1 to 8 different texts", where=place, field="stop", way_out="correct the line")
    return tuple(_content(item, place, "stop", 256) for item in items)


def _slug(value: JsonValue, place: str, name: str) -> str:
    text = value if isinstance(value, str) else ""
    if (
        not 1 <= len(text) <= 128
        or not text.isascii()
        or text != text.lower()
        or not text[0].isalnum()
        or not text[-1].isalnum()
        or not all(char.isalnum() or char in "._-" for char in text)
    ):
        raise InputError(
            "a lowercase id of 1 to 128 characters [a-z0-9._-]", where=place, field=name, way_out="correct the line"
        )
    return text


def _only(value: Mapping[str, JsonValue], allowed: frozenset[str], place: str, prefix: str = "") -> None:
    for name in value:
        if name not in allowed:
            shown = name if name.isidentifier() and len(name) <= 64 else "(a name that is no identifier)"
            raise InputError(
                "unknown field", where=place, field=prefix + shown, way_out="remove it or correct its spelling"
            )


def _case(
    number: int, repeats: int, *, messages: tuple[Message, ...] | None, prompt: str | None, **rest: object
) -> Case:
    name = f"case-{number:05d}"
    values: dict[str, object] = {
        "case_id": name,
        "group_id": name,
        "replicates": repeats,
        "max_tokens": None,
        "temperature": None,
        "top_p": None,
        "seed": None,
        "stop": None,
        "mode": "chat" if messages is not None else "completion",
        "weight": 1.0,
        "input_token_estimate": None,
        "slices": (),
        "route_signal": None,
    }
    values.update(rest)
    return Case(messages=messages, prompt=prompt, **values)  # type: ignore[arg-type]  # every value was checked by its reader


def _sampling(body: Mapping[str, JsonValue], place: str, cap: str) -> dict[str, object]:
    return {
        "max_tokens": _whole(body.get(cap), place, cap, 1, 1_000_000),
        "temperature": _number(body.get("temperature"), place, "temperature", 0, 2),
        "top_p": _number(body.get("topP", body.get("top_p")), place, "topP", 0, 1),
        "seed": _whole(body.get("seed"), place, "seed", -(2**53) + 1, 2**53 - 1),
        "stop": _stop(body.get("stop"), place),
    }


_TASC_FIELDS = frozenset({"caseId", "groupId", "replicates", "generation", "workload", "slices", "routeSignal"})
_GENERATION_FIELDS = frozenset(
    {"messages", "prompt", "maxTokens", "temperature", "topP", "seed", "stop", "stream", "n"}
)
_WORKLOAD_FIELDS = frozenset({"mode", "declaredTrafficWeight", "inputTokenEstimate"})
_SIGNAL_FIELDS = frozenset({"value", "sourceId", "observedAt"})


def _read_tasc(line: bytes, number: int, replicates: int, place: str) -> Case:
    value = _object(line, place)
    _only(value, _TASC_FIELDS, place)
    generation = value.get("generation")
    if not isinstance(generation, dict):
        raise InputError("required field is missing", where=place, field="generation", way_out="add it")
    _only(generation, _GENERATION_FIELDS, place, "generation.")
    if ("messages" in generation) == ("prompt" in generation):
        raise InputError(
            "exactly one of messages and prompt", where=place, field="generation", way_out="give one of them"
        )
    workload = value.get(
        "workload", {"mode": "completion" if "prompt" in generation else "chat", "declaredTrafficWeight": 1}
    )
    if not isinstance(workload, dict):
        raise InputError("an object", where=place, field="workload", way_out="correct the line")
    _only(workload, _WORKLOAD_FIELDS, place, "workload.")
    slices = value.get("slices", [])
    if not isinstance(slices, list) or len(slices) > 64 or len({str(item) for item in slices}) != len(slices):
        raise InputError("at most 64 different slices", where=place, field="slices", way_out="correct the line")
    signal = value.get("routeSignal")
    if signal is not None:
        if not isinstance(signal, dict):
            raise InputError("an object or null", where=place, field="routeSignal", way_out="correct the line")
        _only(signal, _SIGNAL_FIELDS, place, "routeSignal.")
    case_id = _slug(value.get("caseId"), place, "caseId")
    weight = _number(workload.get("declaredTrafficWeight", 1), place, "workload.declaredTrafficWeight", 1e-9, 1e9)
    return _case(
        number,
        replicates,
        messages=_messages(generation["messages"], place) if "messages" in generation else None,
        prompt=_content(generation["prompt"], place, "generation.prompt", limits.MAX_PROMPT_CHARACTERS)
        if "prompt" in generation
        else None,
        case_id=case_id,
        group_id=_slug(value.get("groupId", case_id), place, "groupId"),
        replicates=_whole(value.get("replicates", replicates), place, "replicates", 1, 10_000) or replicates,
        mode=_slug(workload.get("mode"), place, "workload.mode"),
        weight=weight if weight is not None else 1.0,
        input_token_estimate=_whole(
            workload.get("inputTokenEstimate"), place, "workload.inputTokenEstimate", 0, 2**53 - 1
        ),
        slices=tuple(_slug(item, place, "slices") for item in slices),
        route_signal=signal,
        **_sampling(generation, place, "maxTokens"),
    )


def _read_messages(line: bytes, number: int, replicates: int, place: str) -> Case:
    value = _object(line, place)
    _only(value, frozenset({"messages"}), place)
    return _case(number, replicates, messages=_messages(value.get("messages"), place), prompt=None)


_BATCH_FIELDS = frozenset({"custom_id", "method", "url", "body"})
_BATCH_BODY = frozenset(
    {
        "model",
        "messages",
        "prompt",
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "top_p",
        "seed",
        "stop",
        "stream",
        "n",
    }
)


def _read_batch(line: bytes, number: int, replicates: int, place: str) -> Case:
    value = _object(line, place)
    _only(value, _BATCH_FIELDS, place)
    body = value.get("body")
    if not isinstance(body, dict) or ("messages" in body) == ("prompt" in body):
        raise InputError(
            "a body with exactly one of messages and prompt", where=place, field="body", way_out="correct the line"
        )
    _only(body, _BATCH_BODY, place, "body.")
    cap = "max_completion_tokens" if "max_completion_tokens" in body else "max_tokens"
    return _case(
        number,
        replicates,
        messages=_messages(body["messages"], place) if "messages" in body else None,
        prompt=_content(body["prompt"], place, "body.prompt", limits.MAX_PROMPT_CHARACTERS)
        if "prompt" in body
        else None,
        **_sampling(body, place, cap),
    )


def _read_text(line: bytes, number: int, replicates: int, place: str) -> Case:
    text = ""
    with suppress(UnicodeDecodeError):
        text = line.decode("utf-8")
    if line and not text:  # not raised within: the decoder's own error holds the line
        raise InputError("not UTF-8", where=place, way_out="save the file as UTF-8")
    return _case(number, replicates, messages=None, prompt=_content(text, place, "line", limits.MAX_PROMPT_CHARACTERS))


_READERS: Mapping[str, Callable[[bytes, int, int, str], Case]] = {
    "tasc": _read_tasc,
    "openai-messages": _read_messages,
    "openai-batch": _read_batch,
    "text-lines": _read_text,
}


def guess_format(first_line: bytes) -> CaseFormat:
    """The format that a first line is written in: JSON with ``generation``, ``custom_id`` or ``messages``, else text."""
    try:
        value = parse_json(first_line.strip(), _CASE_LIMITS)
    except WireError:
        return "text-lines"
    if not isinstance(value, dict):
        return "text-lines"
    if "generation" in value:
        return "tasc"
    if "body" in value:
        return "openai-batch"
    return "openai-messages"
