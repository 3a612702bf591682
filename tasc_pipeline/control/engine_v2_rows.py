"""Replayed rows as the records of a decision. Pure; only as many as a decision of engine v2 may hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from tasc_collector.contracts.decision import ReplayRow
from tasc_collector.contracts.report import EvidenceClass
from tasc_collector.errors import InputError
from tasc_collector.limits import MAX_REPLAY_ROWS
from tasc_pipeline.control.identifiers import texts
from tasc_pipeline.control.joined_rows import Backing, JoinedRows
from tasc_pipeline.control.pairing import Floats
from tasc_pipeline.control.replay import Replay

EVIDENCE_CLASSES: Final[tuple[EvidenceClass, ...]] = ("measured", "reported", "modeled", "unavailable")
"""The words of ``Backing``, by its value."""


def evidence_class(backing: int) -> EvidenceClass:
    """The word of an evidence class."""
    return EVIDENCE_CLASSES[Backing(backing)]


def replay_rows(rows: JoinedRows, replay: Replay) -> tuple[ReplayRow, ...]:
    """One record per replayed row, in their order.

    Raises:
        InputError: more than a decision may hold.
    """
    if len(replay) > MAX_REPLAY_ROWS:
        raise InputError(
            f"{len(replay)} case replicates; a decision of engine v2 holds at most {MAX_REPLAY_ROWS} rows",
            rule="limit of the original's decision",
            way_out="pin an analysis plan (tasc-analysis-plan-v1): our engine has no such limit",
        )
    executions, policy = rows.executions, replay.policy
    selected = [executions.profile_ids[place] for place in executions.profile[replay.row].tolist()]
    return tuple(
        ReplayRow(
            case_id=case_id,
            replicate_id=replicate_id,
            group_id=group_id,
            attempted_profile_ids=(policy.primary_profile_id, profile_id) if escalated else (profile_id,),
            selected_profile_id=profile_id,
            status="success" if succeeded else "failure",
            escalated=escalated,
            score=score,
            score_evidence_class=evidence_class(backing),
            traffic_weight=weight,
            slices=slices,
            ttft_ms=ttft,
            end_to_end_latency_ms=e2e,
            cost_usd=cost,
        )
        for (
            case_id,
            replicate_id,
            group_id,
            profile_id,
            escalated,
            succeeded,
            score,
            backing,
            weight,
            slices,
            ttft,
            e2e,
            cost,
        ) in zip(
            texts(rows.case_ids[replay.case]),
            texts(rows.replicate_ids[rows.replicate[replay.row]]),
            texts(rows.group_ids[replay.group]),
            selected,
            (replay.first >= 0).tolist(),
            replay.succeeded.tolist(),
            _or_none(replay.score),
            replay.score_class.tolist(),
            replay.weight.tolist(),
            _slices(rows, replay),
            replay.ttft_ms.tolist(),
            replay.e2e_ms.tolist(),
            _or_none(replay.cost_usd),
            strict=True,
        )
    )


def _or_none(values: Floats) -> list[float | None]:
    return [None if np.isnan(value) else value for value in values.tolist()]


def _slices(rows: JoinedRows, replay: Replay) -> Sequence[tuple[str, ...]]:
    names = rows.executions.slice_ids
    members = rows.executions.slices[replay.row].tolist()
    return [tuple(name for name, member in zip(names, row, strict=True) if member) for row in members]
