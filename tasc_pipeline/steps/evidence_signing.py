"""Scores become signed evidence: on the evaluator's machine, from the exported traces and a list of scores. Pure but for
the two files that it reads.

Input is CSV with a header, or JSON lines. One row per trace: ``trace_id`` and ``score`` (0 to 1), or instead of a score
``outcome`` (missing, invalid or abstained) and ``reason_code``. Every other column is refused, so that nobody believes it
was signed, and so is one that a header names twice. The evaluator's identity is the protocol's; the terminal output is the
trace's; a row about a trace that is not in the export, that has no terminal output, or that ended after the scores were
produced, is refused. With one bad row, or none at all, nothing is signed.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tasc_collector.canonical import canonical_bytes, digest
from tasc_collector.contracts.base import Parsed
from tasc_collector.contracts.envelope import TraceEnvelope
from tasc_collector.contracts.evidence import (
    EVIDENCE_FIELD,
    EVIDENCE_SIGNATURE_DOMAIN,
    EvaluatorEvidence,
    evidence_preimage,
)
from tasc_collector.contracts.protocol import ExperimentProtocol
from tasc_collector.errors import InputError, WireError
from tasc_collector.limits import RECORD_FILE_MAX_BYTES
from tasc_collector.signing import SigningKey
from tasc_collector.wire.json import RECORD_JSON, parse_json
from tasc_collector.wire.records import read_bounded

ROW_DOMAIN: Final = "tasc/score-row/v1"
_FIELDS: Final = frozenset({"trace_id", "score", "outcome", "reason_code"})
_UNSIGNED: Final = "A" * 86
_OUTCOMES: Final = ("missing", "invalid", "abstained")
_KEEP: Final = "keep trace_id, score, outcome and reason_code only"
_BOM: Final = b"\xef\xbb\xbf"
_DECIMAL: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
"""Python itself reads ``0_1`` as 1, and digits of any script."""


@dataclass(frozen=True, slots=True)
class Evaluator:
    """Who signs what.

    Args:
        protocol: the study's protocol as it was read; the evaluator's identity is in it.
        key: the evaluator's private key.
        key_id: its id, one that the protocol requires.
        produced_at: when the scores were produced.
    """

    protocol: Parsed[ExperimentProtocol]
    key: SigningKey
    key_id: str
    produced_at: str


@dataclass(frozen=True, slots=True)
class Signed:
    """Signed evidence, canonical lines in order of their trace ids.

    Args:
        lines: one record each, with its newline.
        unscored: successful traces of the export without a row, by profile.
    """

    lines: tuple[bytes, ...]
    unscored: Mapping[str, int]


def sign_scores(traces: Sequence[Parsed[TraceEnvelope]], scores: Path, evaluator: Evaluator) -> Signed:
    """Sign one piece of evidence per row.

    Args:
        traces: the export of the window: ``tasc export traces``.
        scores: CSV where the name ends in ``.csv``, JSON lines otherwise.
        evaluator: identity and key.

    Raises:
        InputError: the key is not pinned by the protocol, or the first row that cannot be signed.
    """
    protocol = evaluator.protocol.record
    if evaluator.key_id not in protocol.evaluator.required_trusted_key_ids:
        raise InputError(
            "the protocol does not pin this key",
            where=evaluator.key_id,
            field="evaluator.requiredTrustedKeyIds",
            rule="evidence counts only under a key that was pinned before the study began",
            way_out=f"sign with one of: {', '.join(protocol.evaluator.required_trusted_key_ids)}",
        )
    protocol_digest = ExperimentProtocol.digest_of(evaluator.protocol.value)
    by_id = {trace.record.trace_id: trace.record for trace in traces}
    for trace in by_id.values():
        if (trace.study_id, trace.protocol_digest) != (protocol.study_id, protocol_digest):
            raise InputError(
                "the export belongs to another study or protocol",
                where=trace.trace_id,
                field="protocolDigest",
                way_out="give the protocol under which the traces were collected",
            )
    signed: dict[str, bytes] = {}
    for place, row in _rows(scores):
        trace_id, outcome = _read_row(row, place)
        record = by_id.get(trace_id)
        if record is None:
            raise _refusal(place, "trace_id", "the export has no such trace", "export the window that was scored")
        if trace_id in signed:
            raise _refusal(place, "trace_id", "the trace was scored in an earlier row", "keep one row per trace")
        if record.terminal_output_id is None:
            raise _refusal(
                place, "trace_id", "the execution has no terminal output to score", "leave failed executions out"
            )
        if evaluator.produced_at < record.completed_at:
            raise _refusal(
                place,
                "trace_id",
                f"the answer ended at {record.completed_at}, the score is of {evaluator.produced_at}: no score is older "
                "than its answer",
                "set this machine's clock, or say when the scores were produced with --produced-at",
            )
        signed[trace_id] = _sign(record, outcome, digest(ROW_DOMAIN, row), evaluator, protocol_digest, place)
    if not signed:
        raise _refusal(scores.name, None, "there is no row in it", "write a header, and one row per trace")
    unscored: dict[str, int] = {}
    for trace in by_id.values():
        if trace.terminal_output_id is not None and trace.trace_id not in signed:
            unscored[trace.profile_id] = unscored.get(trace.profile_id, 0) + 1
    return Signed(tuple(signed[name] for name in sorted(signed)), dict(sorted(unscored.items())))


def _sign(
    trace: TraceEnvelope,
    outcome: dict[str, Any],  # Any: a JSON object
    source: str,
    evaluator: Evaluator,
    protocol_digest: str,
    place: str,
) -> bytes:
    terms = evaluator.protocol.record.evaluator
    assert trace.terminal_output_id is not None  # noqa: S101 - the caller refused the others
    value: dict[str, Any] = {  # Any: a JSON object
        "version": "tasc-evaluator-evidence-v2",
        "studyId": trace.study_id,
        "protocolDigest": protocol_digest,
        "traceId": trace.trace_id,
        "caseId": trace.case_id,
        "replicateId": trace.replicate_id,
        "profileId": trace.profile_id,
        "split": trace.split,
        "terminalOutputId": trace.terminal_output_id.to_json(),
        "evaluator": {
            "evaluatorId": terms.evaluator_id,
            "rubricVersion": terms.rubric_version,
            "calibrationDigest": terms.calibration_digest,
            "producer": {
                "kind": terms.producer_kind,
                "producerId": terms.producer_id,
                "version": terms.producer_version,
            },
        },
        "outcome": outcome,
        "source": {"kind": "digest", "digest": source},
        "producedAt": evaluator.produced_at,
        "keyId": evaluator.key_id,
        "signatureAlgorithm": "ed25519",
        "signature": _UNSIGNED,
    }
    value["signature"] = evaluator.key.sign(EVIDENCE_SIGNATURE_DOMAIN, EVIDENCE_FIELD, evidence_preimage(value))
    EvaluatorEvidence.from_value(value, where=place)
    return canonical_bytes(value) + b"\n"


def _rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:  # Any: a row's values
    data = read_bounded(path, RECORD_FILE_MAX_BYTES).removeprefix(_BOM)
    if path.suffix.lower() == ".csv":
        try:
            reader = csv.DictReader(io.StringIO(data.decode(), newline=""), strict=True)
            reader.fieldnames = [name.strip() for name in reader.fieldnames or ()]
            _check_header(reader.fieldnames, f"{path.name} line 1")
            for row in reader:
                yield (
                    f"{path.name} line {reader.line_num}",
                    {
                        "" if name is None else name: value.strip() if isinstance(value, str) else value
                        for name, value in row.items()
                        if value != ""
                    },
                )
        except (csv.Error, UnicodeDecodeError):
            raise _refusal(path.name, None, "not UTF-8 CSV with a header", "write trace_id,score lines") from None
        return
    lines = data.split(b"\n")
    if lines and not lines[-1]:
        lines.pop()
    for number, line in enumerate(lines, start=1):
        place = f"{path.name} line {number}"
        try:
            value = parse_json(line, RECORD_JSON)
        except WireError:
            value = None
        if not isinstance(value, dict):
            raise _refusal(place, None, "not a JSON object", 'write lines like {"trace_id": "...", "score": 0.5}')
        yield place, dict(value)


def _check_header(names: Sequence[str], place: str) -> None:
    for name in names:
        if name not in _FIELDS:
            raise _refusal(place, name[:64], "this column is not signed", _KEEP)
        if names.count(name) > 1:
            raise _refusal(place, name, "the header names this column twice", "keep one of them")
    if "trace_id" not in names or not {"score", "outcome"} & set(names):
        missing = "score" if "trace_id" in names else "trace_id"
        raise _refusal(place, missing, "the header lacks this column", "begin the file with the line trace_id,score")


def _read_row(row: dict[str, Any], place: str) -> tuple[str, dict[str, Any]]:  # Any: a row's values
    unknown = sorted(str(name) for name in row.keys() - _FIELDS)
    if unknown:
        raise _refusal(place, unknown[0][:64], "this column is not signed", _KEEP)
    trace_id, outcome = row.get("trace_id"), row.get("outcome", "scored")
    if not isinstance(trace_id, str) or not trace_id:
        raise _refusal(place, "trace_id", "a row names its trace", "add the column trace_id")
    if outcome == "scored":
        if "reason_code" in row:
            raise _refusal(place, "reason_code", "a score has no reason code", "leave it empty")
        return trace_id, {
            "kind": "scored",
            "score": _score(row.get("score"), place),
            "range": {"minimum": 0, "maximum": 1},
            "subscores": [],
        }
    reason = row.get("reason_code")
    if outcome not in _OUTCOMES or "score" in row or not isinstance(reason, str):
        raise _refusal(
            place,
            "outcome",
            "a row has a score, or an outcome (missing, invalid, abstained) with a reason_code",
            "correct the row",
        )
    return trace_id, {"kind": outcome, "reasonCode": reason}


def _score(value: object, place: str) -> float:
    score: float | None = None
    if isinstance(value, str):
        score = float(value) if _DECIMAL.fullmatch(value) else None
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        score = float(value)
    if score is None or not 0 <= score <= 1:
        raise _refusal(place, "score", "a score is a number from 0 to 1", "scale the score into that range")
    return score


def _refusal(place: str, field: str | None, what: str, way_out: str) -> InputError:
    return InputError(f"{what}; nothing was signed", where=place, field=field, way_out=way_out)
