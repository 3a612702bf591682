"""A sealed window: its declaration before collection and its link afterwards.

The key of a window is ``<window id>.r<revision>-<first 8 hex of the declaration's digest>``; a key typed by hand cannot
match a declaration that it does not name. Replicate ids and order hash the declaration's digest, so that nobody re-rolls
the sample by issuing the plan again.

A revision is a declaration of its own, made after the window for evidence that came late. It names the declaration before
it and changes nothing but its watermark; nothing is sent under it. Its plan and traces are those of revision 1.
"""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import model_validator

from tasc_collector.contracts.base import Model
from tasc_collector.contracts.membership import MembershipRule
from tasc_collector.contracts.reasons import ReasonCount
from tasc_collector.contracts.scalars import Count, Digest, Positive, Slug, Timestamp, WindowKey
from tasc_collector.contracts.signed import SignedRecord

MAX_WINDOW_ID = 64
"""Characters of a window id, so that the key fits 80."""


class WindowDeclaration(SignedRecord):
    """Bounds, membership rule and watermark of a window, fixed before anything is collected.

    Signed by the operator, or under a standing authorization by the dispatch key (then ``authorization_digest`` is set).
    """

    domain: ClassVar[str] = "tasc/window-declaration/v1"

    version: Literal["tasc-window-declaration-v1"] = "tasc-window-declaration-v1"
    study_id: Slug
    study_kind: Literal["comparison", "decision"]
    protocol_digest: Digest
    """Digest of the comparison or of the protocol."""
    window_id: Slug
    revision: Positive
    predecessor_digest: Digest | None
    window_class: Literal["observation", "decisive"]
    event_time_start_inclusive: Timestamp
    event_time_end_exclusive: Timestamp
    ingestion_watermark: Timestamp
    membership_rule: MembershipRule
    membership_digest: Digest
    declared_at: Timestamp
    authorization_digest: Digest | None

    @model_validator(mode="after")
    def _rules(self) -> Self:
        if len(self.window_id) > MAX_WINDOW_ID:
            raise ValueError(f"windowId has at most {MAX_WINDOW_ID} characters, so that the window key fits 80")
        if not self.event_time_start_inclusive < self.event_time_end_exclusive <= self.ingestion_watermark:
            raise ValueError("eventTimeStartInclusive < eventTimeEndExclusive <= ingestionWatermark")
        if self.revision == 1 and self.declared_at > self.event_time_start_inclusive:
            raise ValueError("declaredAt <= eventTimeStartInclusive in revision 1")
        if (self.revision == 1) != (self.predecessor_digest is None):
            raise ValueError("predecessorDigest is null exactly in revision 1")
        return self

    @property
    def window_key(self) -> str:
        """The partition key."""
        return _window_key(self.window_id, self.revision, self.digest)

    @property
    def predecessor_key(self) -> str | None:
        """Key of the revision before this one; None in revision 1."""
        if self.predecessor_digest is None:
            return None
        return _window_key(self.window_id, self.revision - 1, self.predecessor_digest)


def _window_key(window_id: str, revision: int, declaration_digest: str) -> str:
    return f"{window_id}.r{revision:02d}-{declaration_digest[7:15]}"


class LinkCounts(Model):
    """Planned executions by final state."""

    planned: Count
    accepted: Count
    not_sent: Count
    not_attempted: Count
    reasons: tuple[ReasonCount, ...]


class WindowLink(SignedRecord):
    """Binds what was collected to its declaration and plan; signed with the collector key when the window is closed."""

    domain: ClassVar[str] = "tasc/window-link/v1"

    version: Literal["tasc-window-link-v1"] = "tasc-window-link-v1"
    window_key: WindowKey
    study_id: Slug
    declaration_digest: Digest
    plan_digest: Digest
    trace_set_digest: Digest
    manifest_digest: Digest | None
    journal_head: Digest
    scrapes_digest: Digest | None
    """Over the window's metric scrapes in their order; null where none were made."""
    device_snapshots_digest: Digest | None
    """Over the window's device snapshots in their order; null where none were made."""
    counts: LinkCounts
    closed_at: Timestamp
