"""From the rows of a window to its arrays. Pure.

A collected window gives one ``Row`` per planned execution, with its own timeline; imported traces give rows with the
envelope's times and no row for what is missing. Costs are modeled here, because a cost ceiling belongs to every row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tasc_pipeline.control.decisions.costs import CostRule, Usage, ceiling_usd, costs
from tasc_pipeline.control.decisions.units import OUTCOME_OF, Lack, Outcome, Side, Units
from tasc_pipeline.control.observations import Observation
from tasc_pipeline.control.pairing import Floats

NS_PER_MS = 1_000_000


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
    """

    observation: Observation
    slices: tuple[str, ...]
    route_signal: float | None
    started_ms: float | None
    score: float | None
    lack: Lack = Lack.NONE


def priced(rows: Sequence[Row], cost: Mapping[str, CostRule]) -> list[Row]:
    """The rows with the cost of every call by its profile's price; what a call measured or reported itself stays.

    Args:
        rows: of a window, all of them: calls that are open together share a device.
        cost: per profile, how its calls are priced; a profile without has no costs.
    """
    found = list(rows)
    for profile_id, rule in sorted(cost.items()):
        places = [index for index, row in enumerate(rows) if row.observation.profile_id == profile_id]
        for index, usd in zip(places, costs(rule, _usage([rows[index] for index in places])).tolist(), strict=True):
            observation = rows[index].observation
            if observation.cost_usd is None and not math.isnan(usd):
                found[index] = replace(rows[index], observation=replace(observation, cost_usd=usd))
    return found


def units_of(rows: Sequence[Row], cost: Mapping[str, CostRule], slices: Sequence[str]) -> Units:
    """The arrays of a window.

    Args:
        rows: in any order, priced; at most one per unit and profile.
        cost: per profile, what bounds the cost of a call that is not known.
        slices: the slices that are asked about.
    """
    keys = sorted({row.observation.unit for row in rows})
    place = {key: index for index, key in enumerate(keys)}
    groups = {name: index for index, name in enumerate(dict.fromkeys(key[0] for key in keys))}
    cases = {name: index for index, name in enumerate(dict.fromkeys(key[:2] for key in keys))}
    weight, signal = np.ones(len(keys)), np.full(len(keys), np.nan)
    within = {name: np.zeros(len(keys), dtype=bool) for name in slices}
    by_profile: dict[str, list[tuple[int, Row]]] = {}
    for row in rows:
        index = place[row.observation.unit]
        by_profile.setdefault(row.observation.profile_id, []).append((index, row))
        weight[index] = row.observation.weight
        if row.route_signal is not None:
            signal[index] = row.route_signal
        for name in row.slices:
            if name in within:
                within[name][index] = True
    return Units(
        case=np.array([cases[key[:2]] for key in keys], dtype=np.int64),
        group=np.array([groups[key[0]] for key in keys], dtype=np.int64),
        groups=len(groups),
        weight=weight,
        slices=within,
        route_signal=signal,
        sides={name: _side(by_profile[name], len(keys), cost.get(name)) for name in sorted(by_profile)},
    )


def _side(rows: Sequence[tuple[int, Row]], count: int, rule: CostRule | None) -> Side:
    places = np.array([index for index, _ in rows], dtype=np.int64)
    items = [row for _, row in rows]
    outcome, lack = np.full(count, int(Outcome.ABSENT), dtype=np.int64), np.zeros(count, dtype=np.int64)
    outcome[places] = [OUTCOME_OF[row.observation.outcome] for row in items]
    lack[places] = [row.lack for row in items]

    def column(values: Iterable[float | None]) -> Floats:
        found = np.full(count, np.nan)
        found[places] = _numbers(values)
        return found

    return Side(
        outcome=outcome,
        score=column(row.score for row in items),
        lack=lack,
        ttft_ns=_ns(column(row.observation.ttft_ms for row in items)),
        itl_ns=_ns(column(row.observation.itl_p50_ms for row in items)),
        tpot_ns=_ns(column(row.observation.tpot_ms for row in items)),
        e2e_ns=_ns(column(row.observation.e2e_ms for row in items)),
        cost_usd=column(row.observation.cost_usd for row in items),
        ceiling_usd=np.full(count, np.inf if rule is None else ceiling_usd(rule, _usage(items))),
    )


def _usage(rows: Sequence[Row]) -> Usage:
    observations = [row.observation for row in rows]
    return Usage(
        input_tokens=_numbers(item.input_tokens for item in observations),
        cached_tokens=_numbers(item.cached_input_tokens for item in observations),
        output_tokens=_numbers(item.output_tokens for item in observations),
        started_ns=_ns(_numbers(row.started_ms for row in rows)),
        e2e_ns=_ns(_numbers(item.e2e_ms for item in observations)),
    )


def _numbers(values: Iterable[float | None]) -> Floats:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _ns(milliseconds: Floats) -> Floats:
    """Whole nanoseconds; exact up to 104 days."""
    return np.rint(milliseconds * NS_PER_MS)
