"""A newcomer's study: two URLs and a file of prompts become a folder of small files that a person reads and keeps in git.

Only passive requests are made. Every value is marked observed, declared or unknown; every digest is computed; nothing is
invented. What the wire cannot tell and nobody declared stays ``unknown`` in the files, visibly. A decision study needs
answers that no server gives (``decision_answers``); everything is checked before the first file is written.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from tasc_collector.contracts.authority import AuthorityKey
from tasc_collector.contracts.base import Record
from tasc_collector.contracts.comparison import Comparison, ComparisonRule, Margins
from tasc_collector.contracts.decision_answers import DecisionAnswers
from tasc_collector.contracts.membership import MembershipRule
from tasc_collector.contracts.operations import KeyRing
from tasc_collector.contracts.protocol import CostUnavailable, ExperimentProtocol
from tasc_collector.contracts.scalars import format_timestamp
from tasc_collector.contracts.study import EndpointFile, Study
from tasc_collector.contracts.trust_snapshot import EvaluatorTrustSnapshot
from tasc_collector.errors import InputError
from tasc_collector.probes.discovery import Discovered
from tasc_collector.shadow.cases import Case, CaseFormat, guess_format, read_cases
from tasc_collector.wire.records import read_record_file
from tasc_pipeline.home import keys
from tasc_pipeline.home.layout import Home
from tasc_pipeline.steps.new_decision import Common, decision_records, protocol_of
from tasc_pipeline.steps.study_parts import (
    EVALUATOR_TRUST,
    Shape,
    StudyFiles,
    ceilings,
    profile_of,
    requirements,
    study_record,
)
from tasc_pipeline.steps.study_servers import (
    Server,
    discovered,
    endpoint_file,
    known_profile,
    shared_route,
    trust_policy,
)

__all__ = ["FAILURE_MARGIN", "NewStudy", "Server", "StudyOutcome", "new_study"]

LIFE = timedelta(days=90)
"""A study is good for a quarter; then it is forked."""

FAILURE_MARGIN = 0.02
"""Largest difference of failure rates that is no worse, where a comparison's user names none."""


@dataclass(frozen=True, slots=True)
class NewStudy:
    """What a user asks for."""

    study_id: str
    owner: str
    champion: Server
    candidates: tuple[Server, ...]
    prompts: Path
    route: str | None = None
    stream: bool = True
    replicates: int = 2
    concurrency: int = 4
    maximum_output_tokens: int = 64
    margin: float = 1.10
    failure_margin: float | None = None
    """Of a comparison; ``FAILURE_MARGIN`` if None."""
    recurring: bool = False
    """Of a comparison."""
    overlap: bool = False
    warm_up: int = 2
    seed: int | None = 1
    answers: DecisionAnswers | None = None
    """Of a decision study; None for a comparison."""


@dataclass(frozen=True, slots=True)
class StudyOutcome:
    """What was written, and what the user should know."""

    folder: Path
    study: Study
    rules: Comparison | ExperimentProtocol
    found: tuple[tuple[str, Discovered], ...]
    """Profile id and what was found out about its server."""
    cases: int
    groups: int
    """Case groups, which the statistics count."""
    replicates: int
    """Most replicates of a case."""

    @property
    def calls(self) -> int:
        """Calls of a window at most, without warm-up."""
        return self.rules.shadow_collection.maximum_logical_executions


def new_study(home: Home, wanted: NewStudy, now: datetime) -> StudyOutcome:
    """Write a study of either kind.

    Args:
        home: the state folder.
        wanted: what the user asks for.
        now: the wall clock.

    Raises:
        InputError: a server cannot be recognised, a case file or an answer breaks a rule, or the study exists; nothing
            was written.
    """
    folder = home.study(wanted.study_id)
    if folder.exists():
        raise InputError(
            "a study with this id exists",
            where=str(folder),
            way_out=f"choose another --study, or use it: tasc seal {wanted.study_id}",
        )
    if wanted.answers is not None:
        _check_decision(wanted)
    trust = _trust(wanted.answers)
    form, cases = _cases(wanted)
    servers = (wanted.champion, *wanted.candidates)
    found = [asyncio.run(discovered(server)) for server in servers]
    runtimes = [known_profile(home, server, item) for server, item in zip(servers, found, strict=True)]
    route, framing = shared_route(runtimes, cases, route=wanted.route, stream=wanted.stream)
    roles = [
        "champion",
        *(("candidate" if len(servers) == 2 else f"candidate-{index}") for index in range(1, len(servers))),
    ]
    ids = [f"{role}-{profile.runtime}" for role, profile in zip(roles, runtimes, strict=True)]
    endpoints = [
        endpoint_file(role, server, item, profile)
        for role, server, item, profile in zip(roles, servers, found, runtimes, strict=True)
    ]
    shape = Shape(
        cases=len(cases),
        replicates=max(case.replicates for case in cases),
        concurrency=wanted.concurrency,
        maximum_output_tokens=wanted.maximum_output_tokens,
        overlap=wanted.overlap,
        warm_up=wanted.warm_up,
        seed=wanted.seed,
        route=route,
        framing=framing,
    )
    common = _common(wanted, shape, keys.read_ring(home), ids, endpoints, now)
    rules, records = _rules(wanted, common, trust)
    study = study_record(
        rules,
        shape,
        endpoints,
        cases=wanted.prompts,
        cases_format=form,
        window_class="observation" if wanted.answers is None else wanted.answers.window_class,
    )
    policy = trust_policy(endpoints, runtimes, route, framing)
    StudyFiles(study, rules, policy, endpoints, records, answers=_kept(wanted.answers)).write(folder)
    return StudyOutcome(
        folder,
        study,
        rules,
        tuple(zip(ids, found, strict=True)),
        len(cases),
        groups=len({case.group_id for case in cases}),
        replicates=shape.replicates,
    )


def _check_decision(wanted: NewStudy) -> None:
    """A decision study takes its rules from the answers, so an option of a comparison would say nothing."""
    if wanted.recurring:
        raise InputError(
            "a decision study says in its answers how often it is looked at",
            where="tasc study new",
            field="--recurring",
            way_out="leave it out, and set sequential = true under [statistics] of the answers file, or --answer "
            "statistics.sequential=true",
        )
    if wanted.failure_margin is not None:
        raise InputError(
            "a decision study says in its answers how many failures are too many",
            where="tasc study new",
            field="--failure-margin",
            way_out="leave it out, and set [gates] in the answers file; statistics.sequential = true there stands "
            "for --recurring",
        )


def _trust(answers: DecisionAnswers | None) -> EvaluatorTrustSnapshot | None:
    if answers is None:
        return None
    return read_record_file(EvaluatorTrustSnapshot, Path(answers.evaluator.trust_file)).record


def _kept(answers: DecisionAnswers | None) -> DecisionAnswers | None:
    """The answers as the study keeps them; the trust snapshot is then the copy beside them."""
    if answers is None:
        return None
    evaluator = answers.evaluator.model_copy(update={"trust_file": EVALUATOR_TRUST})
    return answers.model_copy(update={"evaluator": evaluator})


def _cases(wanted: NewStudy) -> tuple[CaseFormat, tuple[Case, ...]]:
    path = wanted.prompts
    if not path.is_file():
        raise InputError(
            "there is no such file",
            where=str(path),
            field="--prompts",
            way_out="name a file with one prompt per line, or JSON lines",
        )
    with path.open("rb") as lines:
        first = next((line for line in lines if line.strip()), b"")
    form = guess_format(first)
    # a protocol has no replicates of its own: what a case's line does not say is once
    replicates = wanted.replicates if wanted.answers is None else 1
    with path.open("rb") as lines:
        return form, read_cases(lines, form, where=path.name, replicates=replicates)


def _common(
    wanted: NewStudy, shape: Shape, ring: KeyRing, ids: list[str], endpoints: list[EndpointFile], now: datetime
) -> Common:
    at = format_timestamp(now)
    dispatch, collector = keys.current(ring, "dispatch", at), keys.current(ring, "collector", at)
    return Common(
        study_id=wanted.study_id,
        owner=wanted.owner,
        created_at=at,
        expires_at=format_timestamp(now + LIFE),
        dispatch_authority=AuthorityKey(key_id=dispatch.key_id, public_key_spki=dispatch.public_key_spki),
        collector_authority=AuthorityKey(key_id=collector.key_id, public_key_spki=collector.public_key_spki),
        profiles=[profile_of(profile_id, endpoint) for profile_id, endpoint in zip(ids, endpoints, strict=True)],
        shadow_collection=ceilings(shape, len(ids)),
        endpoint_requirements=requirements(endpoints),
    )


def _rules(
    wanted: NewStudy, common: Common, trust: EvaluatorTrustSnapshot | None
) -> tuple[Comparison | ExperimentProtocol, dict[str, Record]]:
    """The comparison, or the protocol with the further records of a decision study."""
    if wanted.answers is None or trust is None:
        return _comparison(wanted, common), {}
    protocol = protocol_of(common, wanted.answers, trust)
    return protocol, decision_records(common, protocol, wanted.answers, trust)


def _comparison(wanted: NewStudy, common: Common) -> Comparison:
    seed = common.study_id[:100]
    champion, *candidates = (profile.id for profile in common.profiles)
    return Comparison(
        study_id=common.study_id,
        comparison_version="v1",
        predecessor_digest=None,
        owner=common.owner,
        created_at=common.created_at,
        expires_at=common.expires_at,
        dispatch_authority=common.dispatch_authority,
        collector_authority=common.collector_authority,
        online_window_membership=MembershipRule(seed=f"{seed}-sample-1", sample_basis_points=10_000),
        profiles=tuple(common.profiles),
        champion_profile_id=champion,
        candidate_profile_ids=tuple(candidates),
        margins=Margins(
            ttft_ratio=wanted.margin,
            itl_ratio=wanted.margin,
            tpot_ratio=wanted.margin,
            e2e_ratio=wanted.margin,
            failure_rate_difference=FAILURE_MARGIN if wanted.failure_margin is None else wanted.failure_margin,
        ),
        rule=ComparisonRule(
            confidence=0.95,
            seed=f"{seed}-resampling-1",
            draws=2000,
            minimum_groups=10,
            minimum_coverage=0.95,
            recurring=wanted.recurring,
        ),
        replicates=wanted.replicates,
        maximum_output_tokens=wanted.maximum_output_tokens,
        shadow_collection=common.shadow_collection,
        cost_allocation=CostUnavailable(),
        endpoint_requirements=common.endpoint_requirements,
        required_capabilities=(),
    )
