"""Which executions a plan means: pairs of case and replicate, sampled and ordered from the declaration's digest alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from tasc_collector.contracts.case_set import CaseSetFile
from tasc_collector.contracts.collection import CollectionPlan, Purpose
from tasc_collector.contracts.window import WindowDeclaration
from tasc_collector.shadow.cases import Case
from tasc_collector.shadow.keys import ExecutionKey
from tasc_collector.shadow.membership import is_selected
from tasc_collector.shadow.order import OrderSeed

UNSAMPLED: Final[frozenset[Purpose]] = frozenset({"development", "holdout"})
"""Purposes whose cases are chosen by group split and not by the window's sample."""


@dataclass(frozen=True, slots=True)
class PlannedPair:
    """One sampled case replicate, by id only."""

    case_id: str
    group_id: str
    replicate_index: int
    replicate_id: str
    order: tuple[str, ...]
    """Profile ids in the order in which they are called."""

    def executions(self) -> Iterator[ExecutionKey]:
        """Its executions."""
        return (ExecutionKey(self.case_id, self.replicate_id, profile_id) for profile_id in self.order)


@dataclass(frozen=True, slots=True)
class Pair:
    """A planned pair together with its case, ready to be sent."""

    planned: PlannedPair
    case: Case

    @property
    def order(self) -> tuple[str, ...]:
        """Profile ids in the order in which they are called."""
        return self.planned.order


def planned_pairs(plan: CollectionPlan, declaration: WindowDeclaration, cases: CaseSetFile) -> Iterator[PlannedPair]:
    """Every pair of the plan: all replicates of all planned cases that the declaration's membership rule selects.

    The sample is of windows: a development or holdout plan's cases were chosen by group, and all of them are collected.
    """
    sampled = plan.purpose not in UNSAMPLED
    seed = OrderSeed(plan.declaration_digest)
    profiles = (plan.champion.profile_id, *(target.profile_id for target in plan.targets if target.role == "candidate"))
    for entry in cases.entries:
        for index in range(entry.replicates):
            identity = seed.replicate_id(entry.case_id, entry.group_id, index)
            if not sampled or is_selected(declaration.membership_rule, entry.case_id, identity):
                yield PlannedPair(
                    entry.case_id,
                    entry.group_id,
                    index,
                    identity,
                    seed.order(entry.case_id, entry.group_id, index, profiles),
                )


def pairs_of(planned: Iterable[PlannedPair], cases: Iterable[Case]) -> Iterator[Pair]:
    """The planned pairs whose case is at hand, replicates of one case spread over the window.

    All first replicates come before all second ones, so that repeats of a case are not neighbours in time.
    """
    by_id = {case.case_id: case for case in cases}
    at_hand = [Pair(pair, by_id[pair.case_id]) for pair in planned if pair.case_id in by_id]
    return iter(sorted(at_hand, key=lambda pair: pair.planned.replicate_index))
