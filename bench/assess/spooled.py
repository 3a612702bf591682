"""The bytes of a window of any size where the product keeps them: envelopes and evidence of real records in a spool.

A journal is written as calls end: every first replicate before every second one, an answer's timeline before its envelope.
Evidence lies in the order of cases, in which the product puts it aside once it is checked. Records differ by nothing but
whether they succeeded: what is hashed takes as long whatever it says.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tasc_collector.canonical import canonical_bytes
from tasc_pipeline.control.engine_v2_dataset import Sources
from tasc_pipeline.control.joined_rows import Evidence, Executions
from tasc_pipeline.control.stored import StoredReceipts, StoredTraces, Text
from tasc_pipeline.control.trace_checks import ProtocolTerms
from tasc_pipeline.steps.spool import Spans, Spool
from tests.support.engine_v2_world import CHAMPION, FAILED, PROTOCOL, SNAPSHOT, attempt, receipt, trace

TIMELINE = b"0" * 2_500
"""As long as a timeline of a hundred token events."""


class _Spooled:
    """Records in a spool, each of which reads as the same one.

    Args:
        spool: where their bytes lie.
        spans: of each.
        record: what is handed out where a record is asked for.
    """

    def __init__(self, spool: Spool, spans: Spans, record: Any) -> None:  # Any: an envelope or a receipt
        self._spool, self._spans, self._record = spool, spans, record

    def __len__(self) -> int:
        return len(self._spans)

    def __getitem__(self, index: Any) -> Any:  # Any: an index gives a record, a slice a list of them
        return self._record if isinstance(index, int) else [self._record] * len(self._spans[index])

    def canonical(self, places: Sequence[int]) -> Sequence[Text]:
        """The canonical bytes of the records at these places."""
        return self._spool.get_many(self._spans[places])


class SpooledTraces(_Spooled, StoredTraces):
    """Envelopes in a spool."""


class SpooledReceipts(_Spooled, StoredReceipts):
    """Checked evidence in a spool."""


def spooled(executions: Executions, evidence: Evidence, folder: Path) -> Sources:
    """What a window's columns were read from.

    Args:
        executions: the window's.
        evidence: about them.
        folder: where the bytes are put.
    """
    traces, receipts = Spool(folder), Spool(folder)
    succeeded = trace("case-0000000", CHAMPION)
    failed = trace("case-0000000", CHAMPION, attempts=[attempt(CHAMPION, **FAILED)])
    texts = {True: canonical_bytes(succeeded.value), False: canonical_bytes(failed.value)}
    envelopes = np.zeros((len(executions), 2), dtype=np.int64)
    outcomes = executions.succeeded.tolist()
    for place in np.lexsort((executions.profile, executions.case_id, executions.replicate_id)).tolist():
        traces.put(TIMELINE)
        envelopes[place] = traces.put(texts[outcomes[place]])
    scores = np.zeros((len(evidence), 2), dtype=np.int64)
    scored = receipt(succeeded, 0.123456789)
    text = canonical_bytes(scored.evidence.to_json())
    for place in np.lexsort((evidence.profile_id, evidence.replicate_id, evidence.case_id)).tolist():
        scores[place] = receipts.put(text)
    return Sources(
        ProtocolTerms.of(PROTOCOL),
        SpooledTraces(traces, envelopes, succeeded),
        SpooledReceipts(receipts, scores, scored),
        SNAPSHOT,
    )
