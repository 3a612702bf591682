"""Records of a window that stay where they were read: their canonical bytes are at hand, and each is parsed when asked for.

A million envelopes and pieces of evidence are several gigabytes of Python objects. A table is joined from their columns and
digested over their bytes; only a problem that is told needs the record itself.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TypeAlias

from tasc_collector.contracts.base import Parsed
from tasc_collector.contracts.envelope import TraceEnvelope
from tasc_collector.contracts.evidence_trust import EvidenceReceipt

Text: TypeAlias = bytes | memoryview
"""Canonical JSON, as it lies there."""


class StoredTraces(Sequence[Parsed[TraceEnvelope]]):
    """Envelopes."""

    @abstractmethod
    def canonical(self, places: Sequence[int]) -> Sequence[Text]:
        """The canonical bytes of the envelopes at these places."""


class StoredReceipts(Sequence[EvidenceReceipt]):
    """Checked evidence."""

    @abstractmethod
    def canonical(self, places: Sequence[int]) -> Sequence[Text]:
        """The canonical bytes of the evidence at these places."""
