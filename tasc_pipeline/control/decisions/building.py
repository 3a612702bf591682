"""From the executions of a window to its arrays. Pure.

A collected window gives one ``Row`` per planned execution, with its own timeline or its envelope's times. Rows are taken a
block at a time and become ``Calls``, columns with one entry per execution; everything after works on columns. Costs
are modeled here, because a cost ceiling belongs to every call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from tasc_pipeline.control.decisions.costs import CostRule, Usage, ceiling_usd, costs
from tasc_pipeline.control.decisions.units import OUTCOME_OF, Lack, Outcome, Side, Units
from tasc_pipeline.control.identifiers import Codes, Flags, Ids, distinct, id_column, ranked
from tasc_pipeline.control.joined_rows import JoinedRows
from tasc_pipeline.control.joined_rows import Outcome as Joined
from tasc_pipeline.control.observations import Observation
from tasc_pipeline.control.pairing import Floats

NS_PER_MS = 1_000_000
Column: TypeAlias = npt.NDArray[Any]  # Any: of whichever kind
_LACK_OF: Final = np.array(
    [
        {
            Joined.SCORED: Lack.NONE,
            Joined.FAILURE_ZERO: Lack.NONE,
            Joined.ABSTAINED: Lack.ABSTAINED,
            Joined.INVALID: Lack.INVALID,
        }.get(item, Lack.MISSING)
        for item in Joined
    ],
    dtype=np.int64,
)
"""Why an execution of the joined table has no score, by its outcome there."""


@dataclass(frozen=True, slots=True)
class Row:
    """One execution as a decision sees it.

    Args:
        observation: state, times and tokens.
        slices: of its case.
        route_signal: what a router would have decided on, null where it was not observed.
        started_ms: first byte written, milliseconds since 1970, null where there was none.
        score: 0 to 1; null where it is not known. A failure of the protocol has 0.
        lack: why an answer has no score.
        enveloped: it has an envelope, so that the joined table knows it.
    """

    observation: Observation
    slices: tuple[str, ...]
    route_signal: float | None
    started_ms: float | None
    score: float | None = None
    lack: Lack = Lack.NONE
    enveloped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """The executions of a window as columns, in the order that they were taken; NaN is not known.

    Args:
        profile_ids: sorted; ``profile`` is the place in it.
        slice_ids: sorted; the columns of ``slices``.
        case_id: case.
        group_id: group of cases that are not independent of each other.
        enveloped: it has an envelope; these are the executions that were joined, in the same order.
        replicate: repetition of the case.
        profile: place in ``profile_ids``.
        outcome: ``Outcome``.
        lack: ``Lack``.
        slices: ``(rows, len(slice_ids))``.
        weight: the case's traffic weight.
        signal: route signal.
        started_ms: first byte written, milliseconds since 1970.
        ttft_ms: time to first token.
        itl_ms: median gap between token events of the call.
        tpot_ms: time per output token.
        e2e_ms: end to end.
        input_tokens: with the cached ones.
        cached_tokens: of them, from a cache.
        output_tokens: generated.
        cost_usd: cost of the call.
        score: 0 to 1.
    """

    profile_ids: tuple[str, ...]
    slice_ids: tuple[str, ...]
    case_id: Ids
    group_id: Ids
    enveloped: Flags
    replicate: Codes
    profile: Codes
    outcome: Codes
    lack: Codes
    slices: Flags
    weight: Floats
    signal: Floats
    started_ms: Floats
    ttft_ms: Floats
    itl_ms: Floats
    tpot_ms: Floats
    e2e_ms: Floats
    input_tokens: Floats
    cached_tokens: Floats
    output_tokens: Floats
    cost_usd: Floats
    score: Floats

    def __len__(self) -> int:
        return len(self.case_id)


class CallBlocks:
    """Rows become columns, a block at a time."""

    def __init__(self) -> None:
        self._blocks: list[dict[str, Column]] = [_columns(())]
        self._slices: list[tuple[str, ...]] = []
        self._profile_ids: list[str] = []

    def add(self, rows: Sequence[Row]) -> None:
        """Take a block of rows, in their order."""
        self._blocks.append(_columns(rows))
        self._slices += [row.slices for row in rows]
        self._profile_ids += [row.observation.profile_id for row in rows]

    def done(self) -> Calls:
        """Everything that was taken."""
        profile_ids = tuple(sorted(set(self._profile_ids)))
        places = {name: place for place, name in enumerate(profile_ids)}
        slice_ids = tuple(sorted(set().union(*self._slices)))
        columns = {name: place for place, name in enumerate(slice_ids)}
        slices = np.zeros((len(self._slices), len(slice_ids)), dtype=bool)
        for row, own in enumerate(self._slices):
            slices[row, [columns[name] for name in own]] = True
        found: dict[str, Any] = {  # Any: columns of their own kinds
            name: np.concatenate([block[name] for block in self._blocks]) for name in self._blocks[0]
        }
        return Calls(
            profile_ids=profile_ids,
            slice_ids=slice_ids,
            slices=slices,
            profile=np.array([places[name] for name in self._profile_ids], dtype=np.int64),
            **found,
        )


def calls_of(rows: Sequence[Row]) -> Calls:
    """Rows as columns, all at once."""
    blocks = CallBlocks()
    blocks.add(rows)
    return blocks.done()


def _columns(rows: Sequence[Row]) -> dict[str, Column]:
    seen = [row.observation for row in rows]
    return {
        "case_id": id_column(item.case_id for item in seen),
        "group_id": id_column(item.group_id for item in seen),
        "enveloped": np.array([row.enveloped for row in rows], dtype=bool),
        "replicate": np.array([item.replicate for item in seen], dtype=np.int64),
        "outcome": np.array([OUTCOME_OF[item.outcome] for item in seen], dtype=np.int64),
        "lack": np.array([row.lack for row in rows], dtype=np.int64),
        "weight": np.array([item.weight for item in seen], dtype=np.float64),
        "signal": _numbers([row.route_signal for row in rows]),
        "started_ms": _numbers([row.started_ms for row in rows]),
        "ttft_ms": _numbers([item.ttft_ms for item in seen]),
        "itl_ms": _numbers([item.itl_p50_ms for item in seen]),
        "tpot_ms": _numbers([item.tpot_ms for item in seen]),
        "e2e_ms": _numbers([item.e2e_ms for item in seen]),
        "input_tokens": _numbers([item.input_tokens for item in seen]),
        "cached_tokens": _numbers([item.cached_input_tokens for item in seen]),
        "output_tokens": _numbers([item.output_tokens for item in seen]),
        "cost_usd": _numbers([item.cost_usd for item in seen]),
        "score": _numbers([row.score for row in rows]),
    }


def scored(calls: Calls, joined: JoinedRows) -> Calls:
    """The calls with the scores of the joined table; a call that is not in it has none.

    Args:
        calls: of a window.
        joined: the table of exactly their envelopes.
    """
    row_of = np.full(len(calls) + 1, -1, dtype=np.int64)
    row_of[joined.source] = np.arange(len(joined))
    row = row_of[np.where(calls.enveloped, np.cumsum(calls.enveloped) - 1, len(calls))]
    lack = np.append(_LACK_OF[joined.outcome], int(Lack.MISSING))[row]
    return replace(calls, score=np.where(lack == Lack.NONE, np.append(joined.score, np.nan)[row], np.nan), lack=lack)


def priced(calls: Calls, cost: Mapping[str, CostRule]) -> Calls:
    """The calls with the cost of each by its profile's price; what a call measured or reported itself stays.

    Args:
        calls: of a window, all of them: calls that are open together share a device.
        cost: per profile, how its calls are priced; a profile without has no costs.
    """
    found = calls.cost_usd.copy()
    for profile_id, rule in cost.items():
        if profile_id in calls.profile_ids:
            own = np.flatnonzero(calls.profile == calls.profile_ids.index(profile_id))
            found[own] = np.where(np.isnan(found[own]), costs(rule, _usage(calls, own)), found[own])
    return replace(calls, cost_usd=found)


def units_of(calls: Calls, cost: Mapping[str, CostRule], slices: Sequence[str]) -> Units:
    """The arrays of a window.

    Args:
        calls: in any order, priced; at most one per unit and profile.
        cost: per profile, what bounds the cost of a call that is not known.
        slices: the slices that are asked about.
    """
    group, group_ids = ranked(calls.group_id)
    case, case_ids = ranked(calls.case_id)
    case, _ = distinct(group * max(len(case_ids), 1) + case)
    width = int(calls.replicate.max(initial=0)) + 1
    unit, first = distinct(case * width + calls.replicate)
    signal, seen = np.full(len(first), np.nan), ~np.isnan(calls.signal)
    signal[unit[seen]] = calls.signal[seen]
    return Units(
        case=case[first],
        group=group[first],
        groups=len(group_ids),
        weight=calls.weight[first],
        slices={name: _within(calls, name, unit, len(first)) for name in slices},
        route_signal=signal,
        sides={
            name: _side(calls, np.flatnonzero(calls.profile == place), unit, len(first), cost.get(name))
            for place, name in enumerate(calls.profile_ids)
        },
    )


def _within(calls: Calls, name: str, unit: Codes, count: int) -> Flags:
    found = np.zeros(count, dtype=bool)
    if name in calls.slice_ids:
        found[unit[calls.slices[:, calls.slice_ids.index(name)]]] = True
    return found


def _side(calls: Calls, own: Codes, unit: Codes, count: int, rule: CostRule | None) -> Side:
    places = unit[own]
    outcome, lack = np.full(count, int(Outcome.ABSENT), dtype=np.int64), np.zeros(count, dtype=np.int64)
    outcome[places], lack[places] = calls.outcome[own], calls.lack[own]

    def column(values: Floats) -> Floats:
        found = np.full(count, np.nan)
        found[places] = values[own]
        return found

    return Side(
        outcome=outcome,
        score=column(calls.score),
        lack=lack,
        ttft_ns=_ns(column(calls.ttft_ms)),
        itl_ns=_ns(column(calls.itl_ms)),
        tpot_ns=_ns(column(calls.tpot_ms)),
        e2e_ns=_ns(column(calls.e2e_ms)),
        cost_usd=column(calls.cost_usd),
        ceiling_usd=np.full(count, np.inf if rule is None else ceiling_usd(rule, _usage(calls, own))),
    )


def _usage(calls: Calls, own: Codes) -> Usage:
    return Usage(
        input_tokens=calls.input_tokens[own],
        cached_tokens=calls.cached_tokens[own],
        output_tokens=calls.output_tokens[own],
        started_ns=_ns(calls.started_ms[own]),
        e2e_ns=_ns(calls.e2e_ms[own]),
    )


def _numbers(values: Sequence[float | None]) -> Floats:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _ns(milliseconds: Floats) -> Floats:
    """Whole nanoseconds; exact up to 104 days."""
    return np.rint(milliseconds * NS_PER_MS)
