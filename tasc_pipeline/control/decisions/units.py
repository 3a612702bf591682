"""A window of a decision study as arrays: one entry per planned case replicate, one ``Side`` per profile. Pure.

Rules:

1. A *unit* is one replicate of one case that was planned. Every unit has an entry on every side, whatever became of it:
   what was not collected is an outcome, not an absence of rows.
2. ``SUCCESS`` and ``FAILURE`` are known. ``UNKNOWN`` (sent, and nobody knows what became of it) may have been either.
   ``NOT_SENT``, ``NOT_ATTEMPTED`` and ``ABSENT`` are the collector's, not the model's: they are counted apart, and
   they too are bounded as if the call could have gone either way.
3. A score is NaN where it is not known. A failure of the protocol scores 0, as in the original project's join.
4. Times are nanoseconds, costs US dollars; NaN is "not known" and never zero.
5. A case counts by its traffic weight, however many replicates it has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tasc_pipeline.control.pairing import Floats, Ints

Flags: TypeAlias = NDArray[np.bool_]


class Outcome(IntEnum):
    """What became of one planned execution."""

    SUCCESS = 0
    FAILURE = 1
    UNKNOWN = 2
    NOT_SENT = 3
    NOT_ATTEMPTED = 4
    ABSENT = 5


class Lack(IntEnum):
    """Why an answer has no score."""

    NONE = 0
    MISSING = 1
    """Nobody scored it, or the score was not trusted."""
    ABSTAINED = 2
    INVALID = 3


OUTCOME_OF: Mapping[str, Outcome] = {
    "success": Outcome.SUCCESS,
    "failure": Outcome.FAILURE,
    "sent_unknown": Outcome.UNKNOWN,
    "not_sent": Outcome.NOT_SENT,
    "not_attempted": Outcome.NOT_ATTEMPTED,
}
"""The words of ``Observation.outcome``."""


@dataclass(frozen=True, slots=True)
class Side:
    """One profile's, or one policy's, executions over all units.

    Args:
        outcome: ``Outcome`` per unit.
        score: 0 to 1, NaN where it is not known.
        lack: ``Lack`` per unit; of successes without a score.
        ttft_ns: time to first token.
        itl_ns: median gap between token events of the call.
        tpot_ns: time per output token.
        e2e_ns: first byte written to last byte read.
        cost_usd: cost of the call.
        ceiling_usd: the most that the call can have cost, infinite where nothing bounds it.
    """

    outcome: Ints
    score: Floats
    lack: Ints
    ttft_ns: Floats
    itl_ns: Floats
    tpot_ns: Floats
    e2e_ns: Floats
    cost_usd: Floats
    ceiling_usd: Floats

    @property
    def succeeded(self) -> Flags:
        """Where the call succeeded."""
        found: Flags = self.outcome == Outcome.SUCCESS
        return found

    @property
    def known(self) -> Flags:
        """Where it is known whether the call succeeded."""
        found: Flags = self.outcome <= Outcome.FAILURE
        return found


@dataclass(frozen=True, slots=True)
class Units:
    """All planned units of a window, ordered by group, case and replicate.

    Args:
        case: index of the case, 0 and up.
        group: index of the case group, 0 to ``groups`` - 1.
        groups: number of groups.
        weight: traffic weight of the unit's case.
        slices: per slice, which units belong to it.
        route_signal: what a router would have decided on, NaN where it was not observed.
        sides: per profile id.
    """

    case: Ints
    group: Ints
    groups: int
    weight: Floats
    slices: Mapping[str, Flags]
    route_signal: Floats
    sides: Mapping[str, Side]

    def __len__(self) -> int:
        return len(self.case)

    def share(self, among: Flags | None = None) -> Floats:
        """Weight of each unit: its case's weight over the number of the case's units that count; 0 where it does not.

        Args:
            among: the units that count; all of them where not given.
        """
        counts = np.ones(len(self)) if among is None else among.astype(np.float64)
        per_case = np.bincount(self.case, weights=counts)
        return self.weight * counts / np.maximum(per_case[self.case], 1.0)

    def by_group(self, values: Floats) -> Floats:
        """Sums per group."""
        return group_sums(self.group, values, self.groups)

    def groups_with(self, among: Flags) -> int:
        """Number of groups that have a unit among these."""
        return int(np.count_nonzero(np.bincount(self.group[among], minlength=self.groups)))


def group_sums(group: Ints, values: Floats, groups: int) -> Floats:
    """Sums of values per group."""
    return np.bincount(group, weights=values, minlength=groups).astype(np.float64)
