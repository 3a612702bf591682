"""What an assessment of a decision window takes once its records are verified, by the product's own functions, part by part.

python -m bench.assess.decide                 10^4, 10^5 and 10^6 executions; 2 000 groups, 2 000 draws
python -m bench.assess.decide --most 100000   without the largest

*After verification* a window is columns, and the canonical bytes of its envelopes and evidence lie in a spool: the product
reads every record once, holds it against the protocol or checks it, and keeps one entry per column of it
(``steps.decision_inputs``, ``steps.evidence``). From there on this measures everything that the product runs: the join; the
digest by which a decision names the joined table, which is made over every byte of every envelope and piece of evidence;
replay and gates of engine v2 for control and cascade (the original stops at 5 000 pairs); or scores, prices, units and
every gate of our own analysis for the cascade with 95th percentiles, and 99th percentiles of TTFT and E2E. The first
number of each step is seconds of the processor, the second of the clock; hashing is done beside the making of what is
hashed, so that the digest's clock is shorter than its processor.

What comes before it is measured on real records, per second and core: executions read and into columns, evidence into
columns, the check of evidence with its signature and with the check remembered; and the figures that the report tells
beside its gates.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar, cast

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a second thread would be counted as seconds of the processor

from bench.assess.records import StoredExecutions, records
from bench.assess.spooled import spooled
from bench.assess.synthetic import calls, window
from tasc_collector.contracts.base import Parsed
from tasc_collector.contracts.evidence import EVIDENCE_FIELD, EVIDENCE_SIGNATURE_DOMAIN, evidence_preimage
from tasc_collector.contracts.evidence_trust import EvidenceChecker
from tasc_collector.contracts.operations import AnalysisPlan
from tasc_collector.contracts.policy import PolicyBundle, control_policy, policy_space
from tasc_collector.contracts.protocol import ExperimentProtocol
from tasc_collector.signing import SigningKey
from tasc_pipeline.control.decisions import figures
from tasc_pipeline.control.decisions.building import priced, scored, units_of
from tasc_pipeline.control.decisions.costs import CostRule
from tasc_pipeline.control.decisions.ruling import Judgement, judge
from tasc_pipeline.control.decisions.tails import p95_interval
from tasc_pipeline.control.decisions.units import Units
from tasc_pipeline.control.engine_v2_dataset import dataset_of
from tasc_pipeline.control.engine_v2_gates import Setting, figures_of
from tasc_pipeline.control.intervals import Levels
from tasc_pipeline.control.joining import join
from tasc_pipeline.control.record_columns import evidence_of
from tasc_pipeline.control.replay import replay
from tasc_pipeline.control.summaries import counts_of, missing_words, profile_summary, timing_warnings
from tasc_pipeline.control.trace_checks import ProtocolTerms
from tasc_pipeline.steps.collected import Executions as WindowExecutions
from tasc_pipeline.steps.decision_inputs import read_executions
from tests.support.decision_windows import PRICE
from tests.support.engine_v2_world import AS_OF, CANDIDATE, CHAMPION, PROTOCOL, SNAPSHOT, context, pair, protocol

T = TypeVar("T")
GROUPS, DRAWS = 2_000, 2_000
RECORDS = 10_000


@dataclass
class Spent:
    """Seconds of the processor and of the clock, by step."""

    steps: dict[str, tuple[float, float]] = field(default_factory=dict)

    def timed(self, name: str, call: Callable[[], T]) -> T:
        """Add the time of a call to its step."""
        processor, clock = time.process_time(), time.perf_counter()
        found = call()
        before = self.steps.get(name, (0.0, 0.0))
        self.steps[name] = (before[0] + time.process_time() - processor, before[1] + time.perf_counter() - clock)
        return found

    def of(self, *names: str) -> tuple[float, float]:
        """The sum of steps."""
        return sum(self.steps[name][0] for name in names), sum(self.steps[name][1] for name in names)


def gates(units: Units, terms: ExperimentProtocol, policy: PolicyBundle) -> None:
    """Every gate of our own analysis with intervals at the 95th percentile, then the 99th percentiles."""
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
    case = Judgement(
        protocol=terms,
        analysis=analysis,
        analysis_digest=analysis.digest,
        policy=policy,
        champion=CHAMPION,
        window_key="bench.r01-00000000",
        collected_as="bench.r01-00000000",
        watermark=AS_OF,
        capacity=None,
        cost_reason=None,
    )
    judged = judge(case, units, ())
    for values in (judged.side.ttft_ns, judged.side.e2e_ns):
        latencies = figures.latencies(units, judged.side, values)
        found = p95_interval(latencies, Levels(analysis.confidence), judged.resamples, share_beyond=0.01)
        assert found.bounds.low is not None and found.bounds.high is not None


def decide(executions: int, folder: Path) -> Spent:
    """The steps of one size.

    Args:
        executions: how many.
        folder: for the spool.
    """
    made, evidence = window(executions, min(GROUPS, executions // 10))
    sources, timed, spent = spooled(made, evidence, folder), calls(made), Spent()
    terms = protocol(
        bootstrap={"algorithm": "paired-group-percentile-v1", "seed": "draws", "iterations": DRAWS, "alpha": 0.05}
    ).record
    rows = spent.timed("join", lambda: join(made, evidence))
    spent.timed("digest", lambda: dataset_of(rows, made, evidence, sources))
    control = control_policy(terms, AS_OF)
    cascade = next(policy for policy in policy_space(terms, AS_OF) if policy.kind == "cascade")
    baseline = spent.timed("replay", lambda: replay(rows, control))
    other = spent.timed("replay", lambda: replay(rows, cascade))
    setting = Setting(terms, None, "development")
    for candidate in (baseline, other):
        found = spent.timed("engine v2", lambda candidate=candidate: figures_of(rows, candidate, baseline, setting))
        assert found.inference is not None
    cost = {name: CostRule(PRICE, 128, 30_000) for name in (CHAMPION, CANDIDATE)}
    units = spent.timed("units", lambda: units_of(priced(scored(timed, rows), cost), cost, ("hard",)))
    assert len(units) == executions // 2
    spent.timed("gates", lambda: gates(units, terms, cascade))
    return spent


def rates() -> dict[str, float]:
    """Records per second of the processor, each kind of work that goes with their number."""
    made, terms, spent = records(RECORDS), ProtocolTerms.of(PROTOCOL), Spent()
    stored = cast(WindowExecutions, StoredExecutions(made))  # the same two methods over bytes in memory
    read = spent.timed("executions into columns", lambda: read_executions(stored, terms, envelope=False))
    spent.timed("evidence into columns", lambda: evidence_of(made.receipts, terms))

    def told() -> None:
        seen = read.observations
        counts_of(seen), timing_warnings(seen), missing_words(seen)
        for name in (CHAMPION, CANDIDATE):
            profile_summary(seen, name, "candidate")

    spent.timed("figures beside the gates", told)
    return {name: RECORDS / processor for name, (processor, _) in spent.steps.items()}


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
    found = []
    for known in (False, True):
        checker = EvidenceChecker(snapshot, under, verified=lambda _digest, _spki, known=known: known)
        start = time.process_time()
        for _ in range(count):
            assert checker.check(parsed).trusted
        found.append(count / (time.process_time() - start))
    return found[0], found[1]


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--most", type=int, default=1_000_000)
    most = arguments.parse_args().most
    for executions in (10_000, 100_000, 1_000_000):
        if executions <= most:
            with TemporaryDirectory() as folder:
                spent = decide(executions, Path(folder))
            steps = ", ".join(f"{name} {one:.2f}/{two:.2f} s" for name, (one, two) in spent.steps.items())
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            print(f"{executions:>9} executions: {steps}")
            for name, parts in (("engine v2", ("engine v2",)), ("our analysis", ("units", "gates"))):
                for whole, first in (("join, replay, gates", ("join",)), ("and the digest", ("join", "digest"))):
                    one, two = spent.of(*first, "replay", *parts)
                    print(f"{'':>9} {name}, {whole}: {one:.2f} s of the processor, {two:.2f} s of the clock")
            print(f"{'':>9} peak {peak:.2f} GiB")
    for name, rate in rates().items():
        print(f"{name}: {rate:,.0f} per second and core")
    fresh, remembered = signatures()
    print(
        f"evidence checked: {fresh:,.0f} per second and core with the signature, {remembered:,.0f} remembered by digest"
    )


if __name__ == "__main__":
    main()
