"""The tables ``evidence`` and ``reported_scores`` of one window.

A window's evidence is shown as of its watermark, which is also its decision's default: the same files give the same bytes
at any time. Evidence from after the watermark belongs to a revision. Scores that are no evidence (``lm_eval``) are
beside it in ``reported_scores``, and there only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from tasc_pipeline.clock import utc_now
from tasc_pipeline.home import keys
from tasc_pipeline.home.layout import Home
from tasc_pipeline.steps.approved import load_approved
from tasc_pipeline.steps.evidence import CheckedEvidence, check_window_evidence
from tasc_pipeline.steps.lm_eval import imported_scores
from tasc_pipeline.steps.publish import manifest_signer
from tasc_pipeline.warehouse.database import build_views
from tasc_pipeline.warehouse.publish import publish
from tasc_pipeline.warehouse.record_rows import evidence_table, reported_scores_table


@dataclass(frozen=True, slots=True)
class EvidencePublication:
    """What was published of a window's evidence.

    Args:
        checked: the evidence as of the watermark; None for a comparison, which has none.
        as_of: the watermark.
        rows: rows by table.
        sha256: SHA-256 of each table's part.
    """

    checked: CheckedEvidence | None
    as_of: str
    rows: Mapping[str, int]
    sha256: Mapping[str, str]

    @property
    def statuses(self) -> Mapping[str, int]:
        """Pieces of evidence by trust status, every status that occurs."""
        receipts = () if self.checked is None else self.checked.receipts
        return dict(sorted(Counter(receipt.status.value for receipt in receipts).items()))

    @property
    def version(self) -> str:
        """Data version: the parts' digests."""
        return "-".join(self.sha256[table][:16] for table in sorted(self.sha256))


def publish_evidence(home: Home, window_key: str) -> EvidencePublication:
    """Publish both tables of a window; replaces what was published before.

    Raises:
        InputError: a decision study without trust snapshot, or a stored file is not what was taken in.
    """
    approved = load_approved(home, window_key)
    as_of = approved.declaration.record.ingestion_watermark
    checked = None if approved.study.protocol is None else check_window_evidence(home, window_key, as_of)
    receipts = [] if checked is None else list(checked.receipts)
    records = [receipt.evidence for receipt in receipts]
    judged = [(receipt.evidence, receipt.status.value) for receipt in receipts]
    tables = {
        "evidence": evidence_table(window_key, judged),
        "reported_scores": reported_scores_table(window_key, records, imported_scores(home, window_key)),
    }
    signer = manifest_signer(home, approved)
    parts = {
        name: publish(
            home.warehouse,
            name,
            window_key,
            rows,
            sign=signer,
            clock=utc_now,
            source_digest=None if checked is None else checked.evaluator_set_digest,
        )
        for name, rows in tables.items()
    }
    build_views(home.root, clock=utc_now, keys=keys.collector_keys(home))
    return EvidencePublication(
        checked,
        as_of,
        {name: part.rows for name, part in parts.items()},
        {name: part.sha256 for name, part in parts.items()},
    )
