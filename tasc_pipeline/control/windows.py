"""Declaring a window: bounds, membership and watermark, fixed before anything is collected. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic.alias_generators import to_camel

from tasc_collector.contracts.comparison import Comparison
from tasc_collector.contracts.membership import membership_digest
from tasc_collector.contracts.protocol import ExperimentProtocol
from tasc_collector.contracts.scalars import timestamp_ms, timestamp_of_ms
from tasc_collector.contracts.window import WindowDeclaration
from tasc_collector.errors import DigestMismatch, InputError, NotAuthorized
from tasc_collector.signing import SigningKey

MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class WindowBounds:
    """When a window opens, closes, and until when late records may arrive; milliseconds since 1970."""

    start_ms: int
    end_ms: int
    watermark_ms: int

    @classmethod
    def of(cls, start_ms: int, minutes: float, watermark_minutes: float) -> WindowBounds:
        """Bounds from a start and lengths in minutes."""
        end = start_ms + round(minutes * MINUTE_MS)
        return cls(start_ms, end, end + round(watermark_minutes * MINUTE_MS))


def declare(
    rules: Comparison | ExperimentProtocol,
    bounds: WindowBounds,
    *,
    window_id: str,
    window_class: Literal["observation", "decisive"],
    declared_at: str,
    key: SigningKey,
    key_id: str,
    authorization_digest: str | None = None,
) -> WindowDeclaration:
    """Declare and sign a first-revision window.

    Args:
        rules: the comparison or protocol of the study.
        bounds: start, end and watermark, in milliseconds since 1970.
        window_id: under which its revisions are counted.
        window_class: only decisive windows move a controller.
        declared_at: instant of the signature; before the start.
        key: the operator's, or the dispatch key under a standing authorization.
        key_id: of that key in the key ring.
        authorization_digest: the standing authorization that allows it, where nobody approves by hand.

    Raises:
        NotAuthorized: the window does not lie inside the life of the comparison or protocol.
    """
    start, end = timestamp_of_ms(bounds.start_ms), timestamp_of_ms(bounds.end_ms)
    if not timestamp_ms(rules.created_at) <= bounds.start_ms < bounds.end_ms <= timestamp_ms(rules.expires_at):
        raise NotAuthorized(
            f"the window {start} to {end} is not inside the study's life",
            where=rules.study_id,
            rule=f"{rules.created_at} to {rules.expires_at}",
            way_out="choose other bounds, or make a new study: tasc study new",
        )
    protocol_digest = rules.digest
    return WindowDeclaration.sign_with(
        key,
        key_id,
        study_id=rules.study_id,
        study_kind="comparison" if isinstance(rules, Comparison) else "decision",
        protocol_digest=protocol_digest,
        window_id=window_id,
        revision=1,
        predecessor_digest=None,
        window_class=window_class,
        event_time_start_inclusive=start,
        event_time_end_exclusive=end,
        ingestion_watermark=timestamp_of_ms(bounds.watermark_ms),
        membership_rule=rules.online_window_membership,
        membership_digest=membership_digest(window_id, protocol_digest, rules.online_window_membership),
        declared_at=declared_at,
        authorization_digest=authorization_digest,
    )


_FIXED = (
    "study_id",
    "study_kind",
    "protocol_digest",
    "window_id",
    "window_class",
    "event_time_start_inclusive",
    "event_time_end_exclusive",
    "membership_rule",
    "membership_digest",
)
"""What a revision keeps of the declaration before it."""


def revise(
    before: WindowDeclaration, *, ingestion_watermark: str, declared_at: str, key: SigningKey, key_id: str
) -> WindowDeclaration:
    """Declare and sign the next revision of a window, for evidence that came late. Nothing is sent under it.

    Args:
        before: the newest declaration of the window.
        ingestion_watermark: until when evidence counts in the revision.
        declared_at: now.
        key: of the operator.
        key_id: its id in the key ring.

    Raises:
        NotAuthorized: the window is not over, or the watermark would move back.
        InputError: a comparison has no late evidence.
    """
    where = before.window_key
    if before.study_kind == "comparison":
        raise InputError(
            "a comparison has no late evidence",
            where=where,
            field="revision",
            rule="only windows of decision studies are revised",
            way_out=f"seal a new window: tasc seal {before.study_id}",
        )
    if declared_at < before.event_time_end_exclusive:
        raise NotAuthorized(
            "the window is not over",
            where=where,
            field="revision",
            rule=f"a revision is declared after {before.event_time_end_exclusive}",
            way_out="wait for its end",
        )
    if ingestion_watermark < before.ingestion_watermark:
        raise NotAuthorized(
            "the watermark never moves back",
            where=where,
            field="ingestionWatermark",
            rule=f"not before {before.ingestion_watermark}",
            way_out="choose a later watermark",
        )
    return WindowDeclaration.sign_with(
        key,
        key_id,
        **{name: getattr(before, name) for name in _FIXED},
        revision=before.revision + 1,
        predecessor_digest=before.digest,
        ingestion_watermark=ingestion_watermark,
        declared_at=declared_at,
        authorization_digest=None,
    )


def check_revision(before: WindowDeclaration, after: WindowDeclaration) -> None:
    """Check that ``after`` is the revision that follows ``before``.

    Raises:
        DigestMismatch: it follows another declaration, or changes more than its watermark; names the field.
    """
    changed = [name for name in _FIXED if getattr(before, name) != getattr(after, name)]
    for holds, field, rule in (
        (after.predecessor_digest == before.digest, "predecessorDigest", "a revision names the declaration before it"),
        (after.revision == before.revision + 1, "revision", "a revision is the next number"),
        (not changed, to_camel(changed[0]) if changed else None, "a revision changes nothing but the watermark"),
        (
            after.ingestion_watermark >= before.ingestion_watermark,
            "ingestionWatermark",
            "the watermark never moves back",
        ),
    ):
        if not holds:
            raise DigestMismatch(
                "not a revision of the declaration before it",
                where=after.window_key,
                field=field,
                rule=rule,
                way_out=f"revise the window anew: tasc seal --revise {before.window_key}",
            )


def window_id(study_id: str, start: str) -> str:
    """A readable window id: study and UTC start to the second, cut to what a window key can hold."""
    return f"{study_id[:46].rstrip('._-')}.{start[:19].replace('-', '').replace(':', '').lower()}"
