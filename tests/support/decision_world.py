"""A state folder with a decision study on two contract servers, and a controller that facts move forward."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from tasc_collector.contract_servers import Behaviour, ContractServer
from tasc_collector.contracts.collection import Purpose
from tasc_collector.contracts.controller_facts import (
    CollectionStarted,
    ControllerFact,
    DevelopmentAssessment,
    DevelopmentAssessmentRecorded,
    DevelopmentEvidence,
    DevelopmentEvidenceReady,
    HoldoutAssessment,
    HoldoutAssessmentRecorded,
    ProtocolRegistered,
    SelectedPolicy,
    ShadowAssessmentStarted,
)
from tasc_collector.contracts.decision_answers import DecisionAnswers
from tasc_collector.contracts.envelope import TraceEnvelope
from tasc_collector.contracts.policy import PolicyBundle
from tasc_collector.contracts.scalars import format_timestamp
from tasc_collector.contracts.trust_snapshot import EvaluatorKey, EvaluatorTrustSnapshot, Freshness
from tasc_collector.signing import SigningKey
from tasc_collector.wire.records import read_record
from tasc_pipeline.home import Home
from tasc_pipeline.home.controller import controller_log
from tasc_pipeline.home.studies import LoadedStudy, load_study
from tasc_pipeline.steps import close, collect, plan, publish, seal
from tasc_pipeline.steps.decision_answers import read_answers
from tasc_pipeline.steps.evidence_intake import add_evidence
from tasc_pipeline.steps.evidence_signing import Evaluator, sign_scores
from tasc_pipeline.steps.export import export_traces
from tasc_pipeline.steps.new_study import NewStudy, Server, new_study
from tests.support.window import QUICK, fresh_home, now

STUDY = "choice"
ANSWERS = """
[evaluator]
evaluator_id = "support-scorer"
rubric_version = "rubric 3"
calibration_digest = "sha256:1111111111111111111111111111111111111111111111111111111111111111"
producer_kind = "deterministic"
producer_id = "scoring-job"
producer_version = "2.1"
trust_file = "trust.json"

[route_signal]
definition_id = "confidence"
version = "1"
minimum = 0
maximum = 1
direction = "higher-is-more-confident"
calibration_digest = "sha256:2222222222222222222222222222222222222222222222222222222222222222"
operator = "less-than"
thresholds = [0.7]

[gates]
minimum_mean_score = 0.8
non_inferiority_margin = -0.05
maximum_failure_rate = 0.02
maximum_p95_ttft_ms = 2000
maximum_p95_end_to_end_ms = 5000
maximum_cost_per_thousand_requests_usd = 10
minimum_evidence_coverage = 0.95
minimum_independent_groups = 2

[cost]
champion = { kind = "token-price", input_usd_per_million = 1.0, cached_input_usd_per_million = 0.5, output_usd_per_million = 4.0 }
candidate = { kind = "token-price", input_usd_per_million = 0.5, cached_input_usd_per_million = 0.25, output_usd_per_million = 2.0 }
"""
D = "sha256:" + "3" * 64


def trust_snapshot(key: SigningKey, at: datetime) -> EvaluatorTrustSnapshot:
    """A snapshot that trusts one key for the evaluator of ``ANSWERS``."""
    return EvaluatorTrustSnapshot(
        freshness=Freshness(maximum_evidence_age_ms=7 * 86_400_000, maximum_future_skew_ms=60_000),
        keys=(
            EvaluatorKey(
                key_id="scorer-1",
                public_key_spki=key.public_key.spki,
                evaluator_id="support-scorer",
                producer_id="scoring-job",
                authorized_rubric_versions=("rubric 3",),
                authorized_calibration_digests=("sha256:" + "1" * 64,),
                valid_from=format_timestamp(at - timedelta(days=1)),
                valid_until=format_timestamp(at + timedelta(days=365)),
            ),
        ),
        revocations=(),
    )


def write_answers(folder: Path, key: SigningKey, text: str = ANSWERS) -> Path:
    """Answers and trust snapshot in a folder; returns the answers' file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "trust.json").write_bytes(trust_snapshot(key, now()).canonical())
    (folder / "answers.toml").write_text(text)
    return folder / "answers.toml"


@dataclass
class DecisionWorld:
    """A home, two servers and a decision study named ``choice``."""

    home: Home
    champion: ContractServer
    candidate: ContractServer
    cases: Path
    answers: DecisionAnswers
    evaluator_key: SigningKey = field(repr=False)

    @property
    def study(self) -> LoadedStudy:
        """The study as its files are now."""
        return load_study(self.home, STUDY)

    @property
    def calls(self) -> int:
        """What both servers counted on inference routes."""
        return self.champion.ledger.inference_calls + self.candidate.ledger.inference_calls

    @property
    def fast_only(self) -> PolicyBundle:
        """The candidate policy that a nomination selects."""
        return next(policy for policy in self.study.policies.values() if policy.kind == "fast-only")

    def take(self, *facts: ControllerFact) -> None:
        """Record facts in the controller's log."""
        log = controller_log(self.home, self.study)
        for fact in facts:
            log.record(fact, format_timestamp(now()))

    def to_collecting(self) -> None:
        """Move the controller to COLLECTING."""
        protocol = self.study.rules
        self.take(
            ProtocolRegistered(protocol_created_at=protocol.created_at, protocol_expires_at=protocol.expires_at),
            CollectionStarted(collection_id="collection-1"),
        )

    def to_shadow_assessing(self) -> None:
        """Move the controller from COLLECTING to SHADOW_ASSESSING, with the fast-only policy nominated."""
        self.take(
            DevelopmentEvidenceReady(evidence=DevelopmentEvidence(**_SETS)),
            DevelopmentAssessmentRecorded(
                projection=DevelopmentAssessment(
                    **self._projection("4"), status="NOMINATED", selected_policy=self._selected
                )
            ),
            ShadowAssessmentStarted(frozen_policy_digest=self.fast_only.policy_digest),
        )

    def to_holdout_confirmed(self) -> None:
        """Move the controller from SHADOW_ASSESSING to HOLDOUT_CONFIRMED."""
        self.take(
            HoldoutAssessmentRecorded(
                projection=HoldoutAssessment(**self._projection("5"), status="PASS", selected_policy=self._selected)
            )
        )

    @property
    def _selected(self) -> SelectedPolicy:
        policy = self.fast_only
        return SelectedPolicy(
            policy_digest=policy.policy_digest, issued_at=policy.issued_at, expires_at=policy.expires_at
        )

    def _projection(self, digit: str) -> dict[str, Any]:
        return {
            "decision_digest": "sha256:" + digit * 64,
            "assessment_context_digest": D,
            "protocol_digest": self.study.protocol_digest,
            **_SETS,
        }

    def sealed(self, **options: Any) -> str:
        """Seal a window that starts in a moment; returns its key."""
        return seal.seal(self.home, STUDY, seal.SealOptions(**{"lead_s": 0.5} | options), now()).window_key

    def approved(self, purpose: Purpose) -> str:
        """Seal, plan for a purpose and approve at one instant, so that a slow machine starts no window early."""
        at = now()
        key = seal.seal(self.home, STUDY, seal.SealOptions(lead_s=0.5), at).window_key
        made, _ = plan.make_plan(self.home, key, at, write=True, purpose=purpose)
        plan.approve(self.home, key, made.digest, at)
        return key

    def collected(self, purpose: Purpose) -> str:
        """Seal, plan, approve, collect, publish and close a window for a purpose."""
        key = self.approved(purpose)
        result = collect.collect(self.home, key, show=lambda _: None)
        assert result.status == "complete", result
        publish.publish(self.home, key)
        close.close(self.home, key)
        return key

    def add_scores(self, key: str, score: float = 0.9) -> None:
        """Have every successful trace of a window scored and signed, and take the evidence in."""
        traces = [read_record(TraceEnvelope, line) for line in export_traces(self.home, key)]
        scores = self.cases.with_name(f"{key}.csv")
        names = [item.record.trace_id for item in traces if item.record.terminal_output_id is not None]
        scores.write_text("trace_id,score\n" + "".join(f"{name},{score}\n" for name in names))
        protocol, at = self.study.protocol, format_timestamp(now())
        assert protocol is not None
        signed = sign_scores(traces, scores, Evaluator(protocol, self.evaluator_key, "scorer-1", at))
        evidence = scores.with_suffix(".ndjson")
        evidence.write_bytes(b"".join(signed.lines))
        add_evidence(self.home, STUDY, evidence, now())


_SETS = {"dataset_digest": D, "trace_set_digest": D, "evaluator_set_digest": D}


def case_lines(count: int) -> str:
    """Cases in our own form: two per group, every third in the slice ``long``."""
    return "".join(
        json.dumps(
            {
                "caseId": f"case-{number:02d}",
                "groupId": f"conversation-{number // 2}",
                "generation": {"prompt": f"Say something about the number {number}.", "maxTokens": 8},
                "slices": ["long"] if number % 3 == 0 else [],
            }
        )
        + "\n"
        for number in range(count)
    )


@contextmanager
def decision_world(
    folder: Path, *, cases: int = 12, champion: Behaviour = QUICK, candidate: Behaviour = QUICK, answers: str = ANSWERS
) -> Iterator[DecisionWorld]:
    """Two servers, a home and a decision study over ``cases`` cases in ``cases / 2`` groups."""
    home = fresh_home(folder)
    key = SigningKey.generate()
    read = read_answers(write_answers(folder / "answers", key, answers), ())
    lines = folder / "cases.jsonl"
    lines.write_text(case_lines(cases))
    with (
        ContractServer("vllm", behaviour=champion) as first,
        ContractServer("llama.cpp", behaviour=candidate) as second,
    ):
        wanted = NewStudy(
            STUDY,
            "tests",
            Server(first.origin),
            (Server(second.origin),),
            lines,
            warm_up=0,
            maximum_output_tokens=8,
            concurrency=4,
            answers=read,
        )
        new_study(home, wanted, now())
        yield DecisionWorld(home, first, second, lines, read, key)
