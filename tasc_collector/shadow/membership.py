"""Who belongs: the group split and the window sample, both exact hashes that no key can steer (original, section 4.2).

Rules:

1. A group's bucket is the whole 256-bit digest of algorithm, group id and seed, modulo the bucket count. The protocol
   lists which buckets are development and which are held out.
2. A case replicate is in a window's sample if the whole digest of algorithm, case id, replicate id and seed, modulo
   10 000, is below the sample's basis points. It is decided before the fan-out over profiles, so a pair is in or out
   together.
3. A trace belongs to a sealed window if it is online, names the window's protocol, policy, id and membership digest,
   its first attempt started within the bounds, its last attempt ended by the watermark, and rule 2 selects it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, Literal

from tasc_collector.canonical import digest_int
from tasc_collector.contracts.membership import MembershipRule, SplitMembership

if TYPE_CHECKING:
    from tasc_collector.contracts.envelope import TraceEnvelope
    from tasc_collector.contracts.manifest import WindowManifest

GROUP_BUCKET_DOMAIN: Final = "tasc/seeded-sha256-group-bucket/v1"
SAMPLE_DOMAIN: Final = "tasc/seeded-sha256-case-replicate-basis-points/v1"
BASIS_POINTS: Final = 10_000


class Exclusion(StrEnum):
    """Why a trace is not in a window: the first rule it breaks."""

    SPLIT = "split-not-online"
    PROTOCOL = "protocol-digest"
    POLICY = "policy-digest"
    WINDOW = "window-id"
    MEMBERSHIP = "membership-digest"
    EVENT_TIME = "event-time-outside-window"
    WATERMARK = "completed-after-watermark"
    SAMPLE = "not-sampled"


def group_bucket(membership: SplitMembership, group_id: str) -> int:
    """Bucket of a case group, 0 to ``bucket_count`` - 1 (rule 1)."""
    value = {"algorithm": membership.algorithm, "groupId": group_id, "seed": membership.seed}
    return digest_int(GROUP_BUCKET_DOMAIN, value) % membership.bucket_count


def group_split(membership: SplitMembership, group_id: str) -> Literal["dev", "holdout"]:
    """Whether a case group is for development or held out."""
    return "dev" if group_bucket(membership, group_id) in membership.development_buckets else "holdout"


def sample_bucket(rule: MembershipRule, case_id: str, replicate_id: str) -> int:
    """Bucket of a case replicate, 0 to 9 999 (rule 2)."""
    value = {"algorithm": rule.algorithm, "caseId": case_id, "replicateId": replicate_id, "seed": rule.seed}
    return digest_int(SAMPLE_DOMAIN, value) % BASIS_POINTS


def is_selected(rule: MembershipRule, case_id: str, replicate_id: str) -> bool:
    """Whether a case replicate is in the window's sample (rule 2)."""
    return sample_bucket(rule, case_id, replicate_id) < rule.sample_basis_points


def exclusion(trace: TraceEnvelope, manifest: WindowManifest) -> Exclusion | None:
    """Why a trace does not belong to a sealed window, or None where it does (rule 3)."""
    start, end = manifest.event_time_start_inclusive, manifest.event_time_end_exclusive
    for holds, reason in (
        (trace.split == "online", Exclusion.SPLIT),
        (trace.protocol_digest == manifest.protocol_digest, Exclusion.PROTOCOL),
        (trace.policy_digest == manifest.frozen_policy_digest, Exclusion.POLICY),
        (trace.collection_window_id == manifest.window_id, Exclusion.WINDOW),
        (trace.collection_window_membership_digest == manifest.membership_digest, Exclusion.MEMBERSHIP),
        (start <= trace.event_time < end, Exclusion.EVENT_TIME),
        (trace.completed_at <= manifest.ingestion_watermark, Exclusion.WATERMARK),
        (is_selected(manifest.membership_rule, trace.case_id, trace.replicate_id), Exclusion.SAMPLE),
    ):
        if not holds:
            return reason
    return None
