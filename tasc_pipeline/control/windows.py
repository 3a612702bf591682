"""Declaring a window: bounds, membership and watermark, fixed before anything is collected. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tasc_collector.contracts.comparison import Comparison
from tasc_collector.contracts.manifest import membership_digest
from tasc_collector.contracts.protocol import ExperimentProtocol
from tasc_collector.contracts.scalars import timestamp_ms, timestamp_of_ms
from tasc_collector.contracts.window import WindowDeclaration
from tasc_collector.errors import NotAuthorized
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


def window_id(study_id: str, start: str) -> str:
    """A readable window id: study and UTC start to the second, cut to what a window key can hold."""
    return f"{study_id[:46].rstrip('._-')}.{start[:19].replace('-', '').replace(':', '').lower()}"
