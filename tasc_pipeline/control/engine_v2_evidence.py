"""Canonical JSON of checked evidence as it stands in the table of engine v2, made from its fields. Pure.

A table holds every piece whole, a million of them at most, and evidence of one evaluator differs in a few ids and numbers:
what repeats is made once, the rest is put between. Ids, digests, instants and signatures are ASCII without anything to
escape, so they stand as they are. The bytes are exactly ``canonical_bytes`` of ``Backings.evidence``; a test compares both.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
import orjson

from tasc_collector.canonical import JsonValue, canonical_bytes
from tasc_collector.contracts.evidence import DigestSource, EvaluatorEvidence, EvidenceEvaluator, Scored, ScoreRange
from tasc_pipeline.control.pairing import Floats

_LEAST_ALIKE, _MOST_ALIKE = 1e-3, 1e15
"""Within these a number that is not whole has one form, in RFC 8785 as in every writer of shortest decimals."""
_EVIDENCE: Final = (
    '{"caseId":"%s","evaluator":%s,"keyId":"%s","outcome":%s,"producedAt":"%s","profileId":"%s","protocolDigest":"%s",'
    '"replicateId":"%s","signature":"%s","signatureAlgorithm":"ed25519","source":%s,"split":"%s","studyId":"%s",'
    '"terminalOutputId":{"algorithm":"hmac-sha256","keyId":"%s","value":"%s"},"traceId":"%s",'
    '"version":"tasc-evaluator-evidence-v2"}'
)
_SCORED: Final = '{"kind":"scored","range":%s,"score":%s,"subscores":[%s]}'
_SUBSCORE: Final = '{"id":"%s","range":%s,"score":%s}'
_RANGE: Final = '{"maximum":%s,"minimum":%s}'
_SOURCE: Final = '{"digest":"%s","kind":"digest"}'


def scored_evidence(item: EvaluatorEvidence, scored: Scored) -> bytes:
    """Canonical JSON of evidence with a score; whole numbers as integers.

    Args:
        item: the evidence.
        scored: its outcome.
    """
    output, source = item.terminal_output_id, item.source
    written = _EVIDENCE % (
        item.case_id,
        _evaluator(item.evaluator),
        item.key_id,
        _outcome(scored),
        item.produced_at,
        item.profile_id,
        item.protocol_digest,
        item.replicate_id,
        item.signature,
        _SOURCE % source.digest if isinstance(source, DigestSource) else canonical_bytes(source.to_json()).decode(),
        item.split,
        item.study_id,
        output.key_id,
        output.value,
        item.trace_id,
    )
    return written.encode()


@lru_cache(maxsize=4_096)
def number(value: float) -> str:
    """A number as RFC 8785 writes it."""
    return canonical_bytes(value).decode()


def numbers(values: Floats) -> list[bytes]:
    """Finite numbers as RFC 8785 writes them."""
    found = orjson.dumps(values.tolist())[1:-1].split(b",") if len(values) else []
    size = np.abs(values)
    alone = (size < _LEAST_ALIKE) | (size >= _MOST_ALIKE) | (values == np.rint(values))
    for place in np.flatnonzero(alone).tolist():
        found[place] = number(float(values[place])).encode()
    return found


def _outcome(scored: Scored) -> str:
    parts = [_SUBSCORE % (part.id, _range(part.range), number(part.score)) for part in scored.subscores]
    return _SCORED % (_range(scored.range), number(scored.score), ",".join(parts))


def _range(bounds: ScoreRange) -> str:
    return _RANGE % (number(bounds.maximum), number(bounds.minimum))


def _evaluator(item: EvidenceEvaluator) -> str:
    producer = item.producer
    return _evaluator_of(
        item.evaluator_id,
        item.rubric_version,
        item.calibration_digest,
        producer.kind,
        producer.producer_id,
        producer.version,
    )


@lru_cache(maxsize=256)
def _evaluator_of(
    evaluator_id: str, rubric_version: str, calibration_digest: str, kind: str, producer_id: str, version: str
) -> str:
    value: dict[str, JsonValue] = {
        "evaluatorId": evaluator_id,
        "rubricVersion": rubric_version,
        "calibrationDigest": calibration_digest,
        "producer": {"kind": kind, "producerId": producer_id, "version": version},
    }
    return canonical_bytes(value).decode()
