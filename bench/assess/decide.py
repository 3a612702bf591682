"""Join, replay and all gates of a decision window, from columns as verification leaves them; and signatures apart.

python -m bench.assess.decide                 10^4, 10^5 and 10^6 executions; 2 000 groups, 2 000 draws
python -m bench.assess.decide --most 100000   without the largest

Seconds are of the processor, which on an idle machine are those of the clock: nothing here uses a second core. ``engine
v2`` is control and cascade with the original's gates; the original stops at 5 000 pairs. ``ours`` is every gate of the
analysis plan for the cascade, with 95th percentiles, and then the 99th percentiles of TTFT and E2E.

Columns are not all that an assessment does. ``rows`` is what the product does before: prices and arrays from one Python object per
execution (``control.decisions.building``), printed for 20 000 and proportional. The digest of the joined table's canonical JSON
(``control.engine_dataset``), about 1 ms per execution, and reading the journal are not measured here.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a second thread would be counted as seconds of the processor

import numpy as np

from bench.assess.synthetic import window
from tasc_collector.contracts.base import Parsed
from tasc_collector.contracts.evidence import EVIDENCE_FIELD, EVIDENCE_SIGNATURE_DOMAIN, evidence_preimage
from tasc_collector.contracts.evidence_trust import EvidenceChecker
from tasc_collector.contracts.operations import AnalysisPlan
from tasc_collector.contracts.policy import PolicyBundle, control_policy, policy_space
from tasc_collector.contracts.protocol import ExperimentProtocol
from tasc_collector.signing import SigningKey
from tasc_pipeline.control.decisions import figures
from tasc_pipeline.control.decisions.building import priced
from tasc_pipeline.control.decisions.building import units_of as built_units
from tasc_pipeline.control.decisions.costs import CostRule
from tasc_pipeline.control.decisions.ruling import Judgement, judge
from tasc_pipeline.control.decisions.tails import p95_interval
from tasc_pipeline.control.decisions.units import Outcome, Side, Units
from tasc_pipeline.control.engine_gates import Setting, figures_of
from tasc_pipeline.control.intervals import Levels
from tasc_pipeline.control.joined_rows import JoinedRows
from tasc_pipeline.control.joining import join
from tasc_pipeline.control.replay import replay
from tests.support.decision_windows import PRICE
from tests.support.decision_windows import rows as some_rows
from tests.support.engine_world import AS_OF, CHAMPION, PROTOCOL, SNAPSHOT, context, pair, protocol

T = TypeVar("T")
GROUPS, DRAWS = 2_000, 2_000
NS_PER_MS = 1_000_000


def timed(name: str, call: Callable[[], T], spent: dict[str, float]) -> T:
    start = time.process_time()
    found = call()
    spent[name] = spent.get(name, 0.0) + time.process_time() - start
    return found


def units_of(rows: JoinedRows) -> Units:
    """Joined rows as the units of our own engine; every profile ran every unit here."""
    executions = rows.executions

    def side(place: int) -> Side:
        own = rows.unit_rows[:, place]
        e2e = np.where(executions.succeeded[own], executions.e2e_ms[own], np.nan) * NS_PER_MS
        return Side(
            outcome=np.where(executions.succeeded[own], int(Outcome.SUCCESS), int(Outcome.FAILURE)),
            score=rows.score[own],
            lack=np.zeros(len(own), dtype=np.int64),
            ttft_ns=executions.ttft_ms[own] * NS_PER_MS,
            itl_ns=e2e / 100,
            tpot_ns=e2e / 100,
            e2e_ns=e2e,
            cost_usd=executions.cost_usd[own],
            ceiling_usd=np.full(len(own), 0.02),
        )

    first = rows.unit_rows[:, 0]
    return Units(
        case=rows.case[first],
        group=rows.group[first],
        groups=len(rows.group_ids),
        weight=executions.weight[first],
        slices={name: executions.slices[first, place] for place, name in enumerate(executions.slice_ids)},
        route_signal=executions.signal[first],
        sides={name: side(place) for place, name in enumerate(executions.profile_ids)},
    )


def ours(units: Units, terms: ExperimentProtocol, policy: PolicyBundle) -> None:
    """Every gate of our engine with intervals at the 95th percentile, then the 99th percentiles."""
    analysis = AnalysisPlan(
        study_id=terms.study_id,
        protocol_digest=terms.digest,
        timing_source="timeline",
        interval="studentized-cluster-bootstrap",
        confidence=0.95,
        draws=DRAWS,
        seed="draws",
        sequential=False,
        minimum_coverage=0.9,
        slice_gates=("hard",),
        pinned_at=AS_OF,
    )
    given: dict[str, Any] = {  # Any: whatever the judgement takes
        "protocol": terms,
        "analysis": analysis,
        "analysis_digest": analysis.digest,
        "policy": policy,
        "champion": CHAMPION,
        "window_key": "bench.r01-00000000",
        "as_of": AS_OF,
        "watermark": AS_OF,
        "capacity": None,
        "cost_reason": None,
    }
    known = {field.name for field in fields(Judgement)}
    judged = judge(Judgement(**{name: value for name, value in given.items() if name in known}), units, ())
    for values in (judged.side.ttft_ns, judged.side.e2e_ns):
        calls = figures.latencies(units, judged.side, values)
        found = p95_interval(calls, Levels(analysis.confidence), judged.resamples, share_beyond=0.01)
        assert found.bounds.low is not None and found.bounds.high is not None


def decide(executions: int) -> dict[str, float]:
    """Seconds per step for one size."""
    made, scored = window(executions, min(GROUPS, executions // 10))
    terms = protocol(
        bootstrap={"algorithm": "paired-group-percentile-v1", "seed": "draws", "iterations": DRAWS, "alpha": 0.05}
    ).record
    spent: dict[str, float] = {}
    rows = timed("join", lambda: join(made, scored), spent)
    control = control_policy(terms, AS_OF)
    cascade = next(policy for policy in policy_space(terms, AS_OF) if policy.kind == "cascade")
    baseline = timed("replay", lambda: replay(rows, control), spent)
    other = timed("replay", lambda: replay(rows, cascade), spent)
    setting = Setting(terms, None, "development")
    for candidate in (baseline, other):
        found = timed("engine v2", lambda candidate=candidate: figures_of(rows, candidate, baseline, setting), spent)
        assert found.inference is not None
    units = timed("replay", lambda: units_of(rows), spent)
    timed("ours", lambda: ours(units, terms, cascade), spent)
    return spent


def rows_per_second(executions: int = 20_000) -> float:
    """Executions per second of the processor from rows, one Python object each, to priced arrays."""
    found = some_rows(7, groups=executions // 2)
    cost = {name: CostRule(PRICE, 128, 30_000) for name in ("champion", "candidate")}
    start = time.process_time()
    made = built_units(priced(found, cost), cost, ("long",))
    spent = time.process_time() - start
    assert sum(len(side.outcome) for side in made.sides.values()) == len(found)
    return len(found) / spent


def signatures(count: int = 2_000) -> tuple[float, float]:
    """Pieces of evidence checked per second and core: with the signature, and with its check remembered."""
    key = SigningKey.generate()
    trusted = SNAPSHOT.keys[0].model_copy(update={"public_key_spki": key.public_key.spki})
    snapshot = SNAPSHOT.model_copy(update={"keys": (trusted,)})
    receipts = pair("case-1")[1]
    evidence = receipts[0].evidence
    value = evidence.to_json()
    value["signature"] = key.sign(EVIDENCE_SIGNATURE_DOMAIN, EVIDENCE_FIELD, evidence_preimage(value))
    parsed = Parsed(type(evidence).from_value(value).record, value)
    under = context().model_copy(
        update={
            "operator_trust_policy_snapshot_digest": snapshot.digest,
            "evaluator_revocation_snapshot_digest": snapshot.revocations_digest,
        }
    )
    rates = []
    for known in (False, True):
        checker = EvidenceChecker(snapshot, under, verified=lambda _digest, _spki, known=known: known)
        start = time.process_time()
        for _ in range(count):
            assert checker.check(parsed).trusted
        rates.append(count / (time.process_time() - start))
    return rates[0], rates[1]


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--most", type=int, default=1_000_000)
    most = arguments.parse_args().most
    assert PROTOCOL.record.champion_profile_id == CHAMPION
    for executions in (10_000, 100_000, 1_000_000):
        if executions <= most:
            spent = decide(executions)
            steps = "  ".join(f"{name} {seconds:.2f} s" for name, seconds in spent.items())
            both = spent["join"] + spent["replay"]
            original, own = both + spent["engine v2"], both + spent["ours"]
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            print(f"{executions:>9} executions  {steps}")
            print(f"{'':>9} together: original {original:.2f} s, ours {own:.2f} s, peak {peak:.2f} GiB")
    rate = rows_per_second()
    print(
        f"before that, rows to columns: {rate:.0f} executions per second, {100_000 / rate:.1f} s for 100 000; not above"
    )
    print("digest of the joined table: about 1 ms per execution, 100 s for 100 000; not above")
    fresh, remembered = signatures()
    print(
        f"evidence checked per second and core: {fresh:.0f} with the signature, {remembered:.0f} remembered by digest"
    )


if __name__ == "__main__":
    main()
