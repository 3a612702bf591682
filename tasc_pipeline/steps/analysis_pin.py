"""One analysis for a whole study: every plan that was issued in it names the same analysis plan.

The file of an analysis plan is not signed, and ``pinnedAt`` is its own word. What cannot be taken back are the collection
plans: each is signed and names the digest. Rules:

1. The study's earliest plan, with its signature checked, is the pin.
2. Every other plan must name the same digest. Those are asked of the window index, because a study has many: each was
   compared with the pin when it was issued.
"""

from __future__ import annotations

from tasc_collector.contracts.operations import KeyRing
from tasc_collector.errors import DigestMismatch
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.window_index import window_facts
from tasc_pipeline.home.windows import WindowFolder


def check_same_analysis(home: Home, ring: KeyRing, study_id: str, window_key: str, digest: str | None) -> None:
    """Refuse an analysis that another plan of the study does not name; see the rules of this module.

    Args:
        home: the state folder.
        ring: keys that plans are signed with.
        study_id: the study.
        window_key: the window that is planned or assessed.
        digest: of its analysis plan.

    Raises:
        DigestMismatch: an issued plan names another; says which window.
        SignatureError: the earliest plan's signature is wrong.
    """
    issued = sorted(
        (item.starts_at, key, item.analysis_plan_digest)
        for key, item in window_facts(home).items()
        if item.study_id == study_id and item.plan_expires_at is not None
    )
    if not issued:
        return
    first = issued[0][1]
    pinned = WindowFolder(home, first).plan(ring).record.analysis_plan_digest
    for key, named in ((first, pinned), *((key, named) for _, key, named in issued)):
        if named != digest:
            raise DigestMismatch(
                f"the plan of window {key} names another analysis",
                where=window_key,
                field="analysisPlanDigest",
                rule=f"{named or 'none'} in every plan of the study",
                way_out="restore the study's analysis plan; another analysis is another study: "
                f"tasc study fork {study_id}",
            )
