"""What the answer of an observation route shows. Pure.

Rules (original project, section 1.11; runtimes' own sources where they differ):

1. ``supported`` needs exactly what the route's ``expects`` says; a complete 404 is ``unsupported``; everything else is
   ``unknown``, with the reason as one allowlisted word.
2. Only what the answer named is confirmed: a model id from a list, a revision from a digest, a build from a version.
3. Of a JSON answer nothing is read but the profile's ``fields``; texts that look like a file's place are dropped.
4. A server that says something else than is configured (model, revision, build) is never ``supported``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Literal

from tasc_collector.canonical import JsonValue
from tasc_collector.contracts.instance import RuntimeInstance
from tasc_collector.contracts.observations import MetricValue
from tasc_collector.errors import DispatchState, InputError, WireError
from tasc_collector.limits import PROBE_MAX_FACT_LENGTH, PROBE_MAX_FACTS, PROBE_MAX_MODELS, PROBE_MAX_ROWS
from tasc_collector.probes.metrics import read_iterations, read_prometheus
from tasc_collector.runtimes.dialects.base import is_error
from tasc_collector.runtimes.profile import Expectation, ObservationRoute, RuntimeProfile
from tasc_collector.runtimes.state import path_like
from tasc_collector.transport.result import ExchangeResult
from tasc_collector.wire.json import parse_json

ReceiptState = Literal["supported", "unsupported", "unknown"]


class ProbeReason(StrEnum):
    """Why a probe came to its state, where no code of the transport and no reason of an answer says it."""

    OBSERVED = "observed"
    ROUTE_ABSENT = "route-absent"
    NOT_ENABLED = "not-enabled"
    UNEXPECTED_STATUS = "unexpected-status"
    BODY_EMPTY = "body-empty"
    BODY_NOT_EMPTY = "body-not-empty"
    BODY_DIFFERS = "body-differs"
    CONTENT_TYPE = "content-type"
    NOT_JSON = "not-json"
    NOT_PROMETHEUS = "not-prometheus"
    ERROR_BODY = "error-body"
    SHAPE_INVALID = "shape-invalid"
    NOT_OK = "not-ok"
    NO_MODEL = "no-model"
    MODEL_ABSENT = "model-absent"
    MODEL_TWICE = "model-twice"
    REMOTE_MODEL = "remote-model"
    REVISION_DIFFERS = "revision-differs"
    BUILD_DIFFERS = "build-differs"
    NO_KNOWN_METRIC = "no-known-metric"
    FEATURE_ABSENT = "feature-absent"
    SEED_NOT_REPEATED = "seed-not-repeated"
    ENDED_BEFORE_ABORT = "ended-before-abort"
    UNHEALTHY_AFTER_ABORT = "unhealthy-after-abort"
    STILL_RUNNING_AFTER_ABORT = "still-running-after-abort"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one probe showed.

    Args:
        state: as a receipt says it.
        reason: one allowlisted word.
        status: HTTP status, where a head came.
        dispatch_state: how far the request came.
        build_seen: the server named the configured build.
        model_seen: it named the configured model.
        revision_seen: it named the configured revision.
        facts: allowlisted values of a JSON answer, by dotted name.
        measured: canonical metrics that were read.
        not_proved: further things that this probe could not show.
    """

    state: ReceiptState
    reason: str
    status: int | None = None
    dispatch_state: DispatchState = DispatchState.COMPLETED
    build_seen: bool = False
    model_seen: bool = False
    revision_seen: bool = False
    facts: Mapping[str, JsonValue] = field(default_factory=dict)
    measured: tuple[MetricValue, ...] = ()
    not_proved: tuple[str, ...] = ()


_HTML: Final = "text/html"
"""No runtime answers an observation with a page: a proxy does, or a login, also with an empty one."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a judge looks at."""

    route: ObservationRoute
    profile: RuntimeProfile
    instance: RuntimeInstance
    body: bytes
    content_type: str | None


class _Refused(Exception):  # a verdict of this module; it never leaves it
    def __init__(self, reason: ProbeReason) -> None:
        super().__init__(reason.value)
        self.reason = reason


def judge(
    route: ObservationRoute,
    profile: RuntimeProfile,
    instance: RuntimeInstance,
    result: ExchangeResult,
    body: bytes | None,
) -> Finding:
    """Judge one answer.

    Args:
        route: the observation route that was read.
        profile: its profile.
        instance: what the operator declares to run there.
        result: how the exchange ended.
        body: body of a complete 200 answer, else None.
    """
    if body is None:
        return failed(result)
    if result.content_type == _HTML:
        return Finding("unknown", ProbeReason.CONTENT_TYPE, result.status)
    try:
        found = _JUDGES[route.expects](_Seen(route, profile, instance, body, result.content_type))
    except _Refused as refused:
        return Finding("unknown", refused.reason, result.status)
    return Finding(
        "supported",
        ProbeReason.OBSERVED,
        result.status,
        build_seen=found.build_seen,
        model_seen=found.model_seen,
        revision_seen=found.revision_seen,
        facts=found.facts,
        measured=found.measured,
        not_proved=found.not_proved,
    )


def failed(result: ExchangeResult) -> Finding:
    """The finding of an exchange that gave no 200 answer (rule 1)."""
    reasons = {404: ProbeReason.ROUTE_ABSENT, 501: ProbeReason.NOT_ENABLED}
    complete = result.state is DispatchState.COMPLETED
    if complete and result.status is not None and not 200 <= result.status < 300:
        reason: str = reasons.get(result.status, ProbeReason.UNEXPECTED_STATUS)
    else:
        reason = ProbeReason.UNEXPECTED_STATUS if result.code is None else result.code.value
    state: ReceiptState = "unsupported" if complete and result.status == 404 else "unknown"
    return Finding(state, reason, result.status, result.state)


def is_remote(entry: Mapping[str, Any], profile: RuntimeProfile) -> bool:  # Any: a JSON object
    """Whether an entry of a model list, or its name, says that another host would answer."""
    name = entry.get("name") or entry.get("id")
    named = isinstance(name, str) and profile.passes_on(name)
    return bool(entry.get("remote_host") or entry.get("remote_model")) or named


def kept_fields(value: JsonValue, fields: tuple[str, ...]) -> dict[str, JsonValue]:
    """The allowlisted scalars of a JSON answer.

    Args:
        value: the whole answer.
        fields: dotted names; ``name[]`` stands for the items of a list.

    Returns:
        Dotted name, with the index in the place of ``[]``, to a number, a flag or a harmless text.
    """
    kept: dict[str, JsonValue] = {}
    for name in fields:
        for path, item in _walk(value, name.split("."), ""):
            if len(kept) < PROBE_MAX_FACTS and _harmless(item):
                kept[path] = item
    return kept


def _walk(value: JsonValue, names: list[str], path: str) -> list[tuple[str, JsonValue]]:
    if not names:
        if isinstance(value, list):
            return [(f"{path}.{index}", item) for index, item in enumerate(value)]
        return [(path, value)]
    name, listed = names[0].removesuffix("[]"), names[0].endswith("[]")
    if not isinstance(value, dict) or name not in value:
        return []
    inner, here = value[name], f"{path}.{name}" if path else name
    if not listed:
        return _walk(inner, names[1:], here)
    items = inner if isinstance(inner, list) else []
    return [pair for index, item in enumerate(items) for pair in _walk(item, names[1:], f"{here}.{index}")]


def _harmless(item: JsonValue) -> bool:
    if isinstance(item, str):
        return 0 < len(item) <= PROBE_MAX_FACT_LENGTH and not path_like(item)
    return isinstance(item, (bool, int, float))


# --- judges, one per expectation; each returns for "as expected" ---------------------------------------------------------


def _empty(seen: _Seen) -> Finding:
    if seen.body:
        raise _Refused(ProbeReason.BODY_NOT_EMPTY)
    return _fine()


def _status_200(seen: _Seen) -> Finding:
    return _fine()


def _exact_text(seen: _Seen) -> Finding:
    if seen.body.decode("ascii", "replace") != seen.route.text:
        raise _Refused(ProbeReason.BODY_DIFFERS)
    return _fine()


def _status_ok(seen: _Seen) -> Finding:
    if _object(seen).get("status") != "ok":
        raise _Refused(ProbeReason.NOT_OK)
    return _fine()


def _version(seen: _Seen) -> Finding:
    value = _object(seen)
    if not isinstance(value.get("version"), str):
        raise _Refused(ProbeReason.SHAPE_INVALID)
    if value["version"].partition("+")[0] != seen.instance.runtime.build.partition("+")[0]:
        raise _Refused(ProbeReason.BUILD_DIFFERS)
    exact = value["version"] == seen.instance.runtime.build
    return _fine(build_seen=exact, facts=kept_fields(value, seen.route.fields))


def _fields(seen: _Seen) -> Finding:
    value = _object(seen)
    facts = kept_fields(value, seen.route.fields)
    if not facts:
        raise _Refused(ProbeReason.SHAPE_INVALID)
    said = seen.profile.recognition.build
    named = value.get(said.field) if said is not None and said.path == seen.route.path else None
    match = re.match(said.pattern, named) if said is not None and isinstance(named, str) else None
    if match is not None and match[1] != seen.instance.runtime.build:
        raise _Refused(ProbeReason.BUILD_DIFFERS)
    return _fine(build_seen=match is not None, facts=facts)


def _openai_models(seen: _Seen) -> Finding:
    value = _object(seen)
    data = value.get("data")
    if value.get("object") != "list" or not isinstance(data, list) or len(data) > PROBE_MAX_MODELS:
        raise _Refused(ProbeReason.SHAPE_INVALID)
    names = [entry.get("id") if isinstance(entry, dict) else None for entry in data]
    facts = kept_fields(value, seen.route.fields)
    wanted = seen.instance.model.id
    alone = names[0] if len(names) == 1 else None
    if seen.profile.flags.model_paths and isinstance(alone, str) and alone != wanted and path_like(alone):
        return _fine(facts=facts)
    _one_of(names, wanted)
    return _fine(model_seen=True, facts=facts)


def _ollama_models(seen: _Seen) -> Finding:
    value = _object(seen)
    models = value.get("models")
    if not isinstance(models, list) or len(models) > PROBE_MAX_MODELS:
        raise _Refused(ProbeReason.SHAPE_INVALID)
    configured = seen.instance.model
    _one_of([entry.get("name") if isinstance(entry, dict) else None for entry in models], configured.id)
    entry = next(entry for entry in models if entry.get("name") == configured.id)
    if is_remote(entry, seen.profile):
        raise _Refused(ProbeReason.REMOTE_MODEL)
    digest = str(entry.get("digest")).removeprefix("sha256:")
    if re.fullmatch(r"[0-9a-f]{64}", digest) is None:
        raise _Refused(ProbeReason.SHAPE_INVALID)
    declared = configured.revision.removeprefix("sha256:")
    pinned = re.fullmatch(r"[0-9a-f]{64}", declared) is not None
    if pinned and declared != digest:
        raise _Refused(ProbeReason.REVISION_DIFFERS)
    return _fine(model_seen=True, revision_seen=pinned, facts=kept_fields(value, seen.route.fields))


def _prometheus(seen: _Seen) -> Finding:
    if seen.content_type not in ("text/plain", "application/openmetrics-text"):
        raise _Refused(ProbeReason.CONTENT_TYPE)
    try:
        reading = read_prometheus(seen.profile, seen.body)
    except WireError:
        raise _Refused(ProbeReason.NOT_PROMETHEUS) from None
    if all(item.value is None for item in reading.values) and not reading.histograms:
        raise _Refused(ProbeReason.NO_KNOWN_METRIC)
    return _fine(measured=reading.values)


def _iteration_stats(seen: _Seen) -> Finding:
    rows = _json(seen)
    if not isinstance(rows, list) or len(rows) > PROBE_MAX_ROWS:
        raise _Refused(ProbeReason.SHAPE_INVALID)
    try:
        reading = read_iterations(seen.profile, rows)
    except InputError:
        raise _Refused(ProbeReason.SHAPE_INVALID) from None
    return _fine(measured=reading.values, not_proved=() if rows else ("iteration-statistics",))


_JUDGES: Mapping[Expectation, Callable[[_Seen], Finding]] = {
    Expectation.EMPTY_BODY: _empty,
    Expectation.STATUS_OK: _status_ok,
    Expectation.EXACT_TEXT: _exact_text,
    Expectation.STATUS_200: _status_200,
    Expectation.VERSION: _version,
    Expectation.OPENAI_MODELS: _openai_models,
    Expectation.OLLAMA_MODELS: _ollama_models,
    Expectation.FIELDS: _fields,
    Expectation.PROMETHEUS_TEXT: _prometheus,
    Expectation.ITERATION_STATS: _iteration_stats,
}


def _fine(
    *,
    build_seen: bool = False,
    model_seen: bool = False,
    revision_seen: bool = False,
    facts: Mapping[str, JsonValue] | None = None,
    measured: tuple[MetricValue, ...] = (),
    not_proved: tuple[str, ...] = (),
) -> Finding:
    return Finding(
        "supported",
        ProbeReason.OBSERVED,
        build_seen=build_seen,
        model_seen=model_seen,
        revision_seen=revision_seen,
        facts=facts or {},
        measured=measured,
        not_proved=not_proved,
    )


def _json(seen: _Seen) -> JsonValue:
    if not seen.body:
        raise _Refused(ProbeReason.BODY_EMPTY)
    if seen.content_type != "application/json":
        raise _Refused(ProbeReason.CONTENT_TYPE)
    try:
        return parse_json(seen.body)
    except WireError:
        raise _Refused(ProbeReason.NOT_JSON) from None


def _object(seen: _Seen) -> dict[str, Any]:  # Any: a JSON object
    value = _json(seen)
    if not isinstance(value, dict):
        raise _Refused(ProbeReason.SHAPE_INVALID)
    if is_error(value, seen.profile.flags):
        raise _Refused(ProbeReason.ERROR_BODY)
    return value


def _one_of(names: list[object], wanted: str) -> None:
    """Exactly one entry has the configured name, and no two entries have one."""
    if not names:
        raise _Refused(ProbeReason.NO_MODEL)
    if not all(isinstance(name, str) and 0 < len(name) <= 512 for name in names):
        raise _Refused(ProbeReason.SHAPE_INVALID)
    if len(set(names)) != len(names):
        raise _Refused(ProbeReason.MODEL_TWICE)
    if wanted not in names:
        raise _Refused(ProbeReason.MODEL_ABSENT)
