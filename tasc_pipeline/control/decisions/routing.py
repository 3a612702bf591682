"""What a policy would have given on every unit of a window, from what the profiles gave. Pure.

- ``expert-only`` is the champion's side, ``fast-only`` the candidate's.
- ``cascade``: where the predicate on the route signal holds, the expert answers alone. Else the primary answers; where
  it fails, the expert is asked after it: times add up (TTFT waits for the primary's end), costs add up, the expert's
  outcome, score, ITL and TPOT stand. Without a route signal nobody knows who would have answered: ``ABSENT``.
- Where the primary's outcome is not known, so is the policy's; its cost is at most both together.
"""

from __future__ import annotations

import numpy as np

from tasc_collector.contracts.policy import PolicyBundle
from tasc_pipeline.control.decisions.units import Outcome, Side, Units
from tasc_pipeline.control.pairing import Floats, Ints
from tasc_pipeline.control.replay import holds


def run_policy(units: Units, policy: PolicyBundle) -> Side:
    """The policy's side; see the rules of this module.

    Args:
        units: with the sides of the policy's profiles.
        policy: expert-only, fast-only or cascade.
    """
    if policy.kind != "cascade":
        return units.sides[policy.primary_profile_id]
    return _cascade(units, policy)


def _cascade(units: Units, policy: PolicyBundle) -> Side:
    primary, expert = units.sides[policy.primary_profile_id], units.sides[policy.expert_profile_id]
    unsignalled = np.isnan(units.route_signal)
    alone = ~unsignalled & holds(policy.predicates[0], units.route_signal)
    after = ~unsignalled & ~alone & (primary.outcome == Outcome.FAILURE)
    hidden = unsignalled | (~alone & ~primary.known)

    def chosen(of_primary: Floats, of_expert: Floats, of_both: Floats) -> Floats:
        picked = np.where(alone, of_expert, np.where(after, of_both, of_primary))
        return np.where(hidden, np.nan, picked)

    outcome: Ints = np.where(alone | after, expert.outcome, primary.outcome)
    both_usd = primary.cost_usd + expert.cost_usd
    ceiling = primary.ceiling_usd + expert.ceiling_usd
    return Side(
        outcome=np.where(unsignalled, int(Outcome.ABSENT), outcome),
        score=chosen(primary.score, expert.score, expert.score),
        lack=np.where(alone | after, expert.lack, primary.lack),
        ttft_ns=chosen(primary.ttft_ns, expert.ttft_ns, primary.e2e_ns + expert.ttft_ns),
        itl_ns=chosen(primary.itl_ns, expert.itl_ns, expert.itl_ns),
        tpot_ns=chosen(primary.tpot_ns, expert.tpot_ns, expert.tpot_ns),
        e2e_ns=chosen(primary.e2e_ns, expert.e2e_ns, primary.e2e_ns + expert.e2e_ns),
        cost_usd=chosen(primary.cost_usd, expert.cost_usd, both_usd),
        ceiling_usd=np.where(alone, expert.ceiling_usd, ceiling),
    )
