"""Sealing a window: its declaration is signed and its key is fixed before anything is collected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from tasc_collector.contracts.scalars import format_timestamp, timestamp_ms, timestamp_of_ms
from tasc_collector.contracts.window import WindowDeclaration
from tasc_collector.errors import InputError
from tasc_pipeline.control import windows
from tasc_pipeline.home import keys
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.studies import load_study
from tasc_pipeline.home.windows import DECLARATION, WindowFolder


@dataclass(frozen=True, slots=True)
class SealOptions:
    """How a window differs from the study's defaults.

    Args:
        start: first instant, ``now`` plus ``lead_s`` if None.
        lead_s: seconds ahead of now at which the window starts.
        minutes: length; the study's default if None.
        window_id: readable id; made from study and start if None.
    """

    start: str | None = None
    lead_s: float = 5.0
    minutes: float | None = None
    window_id: str | None = None


def seal(
    home: Home,
    study_id: str,
    options: SealOptions,
    now: datetime,
    *,
    add_partition: Callable[[str], None] | None = None,
) -> WindowDeclaration:
    """Declare a window with the operator's key.

    Args:
        home: the state folder.
        study_id: the study.
        options: what differs from its defaults.
        now: the wall clock.
        add_partition: tells Dagster's instance, where there is one; called after the declaration is durable.

    Raises:
        InputError: the study or a time breaks a rule; nothing was written.
    """
    loaded = load_study(home, study_id)
    ring = keys.read_ring(home)
    declared_at = format_timestamp(now)
    start = options.start or timestamp_of_ms(timestamp_ms(declared_at) + round(options.lead_s * 1000))
    if start < declared_at:
        raise InputError(
            "a window is sealed before it starts",
            where="--start",
            rule=f"not before {declared_at}",
            way_out="choose a later start; late evidence is a revision",
        )
    default = loaded.study.window
    bounds = windows.WindowBounds.of(timestamp_ms(start), options.minutes or default.minutes, default.watermark_minutes)
    operator = keys.current(ring, "operator", declared_at)
    declaration = windows.declare(
        loaded.rules,
        bounds,
        window_id=options.window_id or windows.window_id(study_id, start),
        window_class=default.window_class,
        declared_at=declared_at,
        key=keys.signing_key(home, "keyfile:operator.key"),
        key_id=operator.key_id,
    )
    WindowFolder(home, declaration.window_key).write(DECLARATION, declaration)
    if add_partition is not None:
        add_partition(declaration.window_key)
    return declaration
