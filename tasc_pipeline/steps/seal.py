"""Sealing a window: its declaration is signed and its key is fixed before anything is collected.

A revision is sealed after its window was closed, for evidence that came late. It is a partition of its own, names the
declaration before it, and sends nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from tasc_collector.contracts.scalars import format_timestamp, timestamp_ms, timestamp_of_ms
from tasc_collector.contracts.window import WindowDeclaration
from tasc_collector.errors import InputError
from tasc_pipeline.control import windows
from tasc_pipeline.home import keys, signers
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.signers import Signer
from tasc_pipeline.home.studies import LoadedStudy, load_study
from tasc_pipeline.home.windows import DECLARATION, LINK, WindowFolder, window_folder, window_keys


@dataclass(frozen=True, slots=True)
class SealOptions:
    """How a window differs from the study's defaults.

    Args:
        start: first instant, ``now`` plus ``lead_s`` if None.
        lead_s: seconds ahead of now at which the window starts.
        minutes: length; the study's default if None.
        window_id: readable id; made from study and start if None.
        window_class: observation or decisive; the study's default if None.
    """

    start: str | None = None
    lead_s: float = 5.0
    minutes: float | None = None
    window_id: str | None = None
    window_class: Literal["observation", "decisive"] | None = None


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
    declared_at = format_timestamp(now)
    signer = signers.operator(home, keys.read_ring(home), declared_at)
    declaration = declared(load_study(home, study_id), options, declared_at, signer)
    WindowFolder(home, declaration.window_key).write(DECLARATION, declaration)
    if add_partition is not None:
        add_partition(declaration.window_key)
    return declaration


def revise(
    home: Home,
    window_key: str,
    now: datetime,
    *,
    watermark: str | None = None,
    add_partition: Callable[[str], None] | None = None,
) -> WindowDeclaration:
    """Declare the next revision of a closed window with the operator's key. It sends nothing.

    Args:
        home: the state folder.
        window_key: the newest revision so far.
        now: the wall clock.
        watermark: until when evidence counts; now, or the old watermark where that is later, if None.
        add_partition: tells Dagster's instance, where there is one; called after the declaration is durable.

    Raises:
        InputError: the window is not closed, was revised before, is a comparison's, or the watermark moves back.
    """
    if watermark is not None:
        _check_instant(watermark, "--watermark")
    folder = window_folder(home, window_key)
    ring = keys.read_ring(home)
    before = folder.declaration(ring).record
    if not folder.has(LINK):
        raise InputError(
            "the window is not closed",
            where=window_key,
            field="revision",
            rule="a revision follows a closed window",
            way_out=f"finish it: tasc collect {window_key}",
        )
    following = f"{before.window_id}.r{before.revision + 1:02d}-"
    newer = next((key for key in window_keys(home) if key.startswith(following)), None)
    if newer is not None:
        raise InputError(
            "the window was revised before",
            where=window_key,
            field="revision",
            rule="a revision follows the newest one",
            way_out=f"use {newer}, or revise that one: tasc seal --revise {newer}",
        )
    declared_at = format_timestamp(now)
    signer = signers.operator(home, ring, declared_at)
    declaration = windows.revise(
        before,
        ingestion_watermark=watermark or max(before.ingestion_watermark, declared_at),
        declared_at=declared_at,
        key=signer.key,
        key_id=signer.key_id,
    )
    WindowFolder(home, declaration.window_key).write(DECLARATION, declaration)
    if add_partition is not None:
        add_partition(declaration.window_key)
    return declaration


def declared(
    loaded: LoadedStudy,
    options: SealOptions,
    declared_at: str,
    signer: Signer,
    *,
    authorization_digest: str | None = None,
) -> WindowDeclaration:
    """The signed declaration of a window; nothing is written.

    Args:
        loaded: the study.
        options: what differs from its defaults.
        declared_at: now.
        signer: the operator's key, or under an authorization the dispatch key.
        authorization_digest: the standing authorization, if that is the word.

    Raises:
        InputError: a time breaks a rule.
    """
    study_id = loaded.study.study_id
    if options.start is not None:
        _check_instant(options.start, "--start")
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
    return windows.declare(
        loaded.rules,
        bounds,
        window_id=options.window_id or windows.window_id(study_id, start),
        window_class=options.window_class or default.window_class,
        declared_at=declared_at,
        key=signer.key,
        key_id=signer.key_id,
        authorization_digest=authorization_digest,
    )


def _check_instant(text: str, option: str) -> None:
    try:
        timestamp_ms(text)
    except ValueError as error:
        raise InputError(
            "this is no instant",
            where="tasc seal",
            field=option,
            rule=str(error),
            way_out="write it like 2026-01-31T09:30:00.000Z",
        ) from None
