"""Digests of sets of records, as manifests and assessments carry them (original project, section 3.5)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tasc_collector.canonical import digest

TRACE_SET_DOMAIN: Final = "tasc/assessment-trace-set/v2"
EVALUATOR_SET_DOMAIN: Final = "tasc/assessment-evaluator-set/v2"


def trace_set_digest(trace_digests: Iterable[str]) -> str:
    """Digest of a set of traces by their envelope digests; the order they come in does not matter."""
    return digest(TRACE_SET_DOMAIN, sorted(trace_digests))


def evaluator_set_digest(source_digests: Iterable[str]) -> str:
    """Digest of a set of checked evidence by ``EvidenceReceipt.source_digest``; the order does not matter."""
    return digest(EVALUATOR_SET_DOMAIN, sorted(source_digests))
