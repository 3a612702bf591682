"""What both kinds of study are made of: profiles, requirements, ceilings, and the files of the study's folder.

Nothing is invented: what the wire did not tell and nobody declared is the word ``unknown``, or the digest of the
statement that it is unknown, in the files.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from tasc_collector.canonical import digest
from tasc_collector.contracts.base import Record
from tasc_collector.contracts.collection import ClosedLoad, GenerationRule
from tasc_collector.contracts.comparison import Comparison
from tasc_collector.contracts.execution_profile import (
    ExecutionProfile,
    Hardware,
    NamedBuild,
    Orchestration,
    Quantization,
    Revision,
)
from tasc_collector.contracts.http_limits import HttpLimits
from tasc_collector.contracts.protocol import EndpointRequirement, ExperimentProtocol, ShadowCollection
from tasc_collector.contracts.study import EndpointFile, Study, StudyFork, StudyKeys, StudyTarget, StudyWindow
from tasc_collector.contracts.trust_policy import CollectorTrustPolicy
from tasc_collector.runtimes.profile import Framing, Route
from tasc_collector.shadow.cases import CaseFormat
from tasc_pipeline.home.files import make_folder, write_file
from tasc_pipeline.home.studies import FORK, POLICIES
from tasc_pipeline.home.toml_records import dump_toml
from tasc_pipeline.steps.study_servers import ATTEMPT_TIMEOUT_MS, UNKNOWN

MAXIMUM_ATTEMPTS: Final = 2
RESPONSE_BYTES: Final = 4 * 1024 * 1024
RULES_FILE: Final[Mapping[str, str]] = {"comparison": "comparison.json", "decision": "protocol.json"}
TRUST_POLICY: Final = "trust-policy.json"
ANALYSIS_PLAN: Final = "analysis-plan.json"
COST_MODEL: Final = "cost-model.json"
EVALUATOR_TRUST: Final = "evaluator-trust.json"
ANSWERS: Final = "answers.toml"


@dataclass(frozen=True, slots=True)
class Shape:
    """How a study collects: what ``tasc study new`` was told beside the servers."""

    cases: int
    replicates: int
    concurrency: int
    maximum_output_tokens: int
    overlap: bool
    warm_up: int
    seed: int | None
    route: Route
    framing: Framing


def profile_of(profile_id: str, endpoint: EndpointFile) -> ExecutionProfile:
    """The execution profile of an endpoint: what its file says, and what is unknown."""

    def unknown(field: str) -> str:
        return digest("tasc/unknown-configuration/v1", {"profile": profile_id, "field": field})

    return ExecutionProfile(
        id=profile_id,
        runtime=NamedBuild(name=endpoint.runtime.profile_id, build=endpoint.runtime.build),
        backend=NamedBuild(name=endpoint.backend.name, build=endpoint.backend.build),
        model=Revision(id=endpoint.model.id, revision=endpoint.model.revision),
        tokenizer=Revision(id=UNKNOWN, revision=UNKNOWN),
        hardware=Hardware(architecture=UNKNOWN, accelerator=UNKNOWN, accelerator_count=1),
        quantization=Quantization(format=UNKNOWN, configuration_digest=unknown("quantization")),
        chat_template_digest=unknown("chatTemplate"),
        orchestration=Orchestration(kind="direct", configuration_digest=unknown("orchestration")),
        deployment_configuration_digest=endpoint.configuration_digest,
    )


def requirements(endpoints: Sequence[EndpointFile]) -> tuple[EndpointRequirement, ...]:
    """What the rules require of the trust policy: alias, runtime and transport of every endpoint."""
    return tuple(
        EndpointRequirement(
            runtime_name=endpoint.runtime.profile_id,
            endpoint_alias=endpoint.alias,
            transport="loopback-http" if endpoint.origin.startswith("http://") else "https",
        )
        for endpoint in sorted(endpoints, key=lambda endpoint: endpoint.alias)
    )


def ceilings(shape: Shape, profiles: int) -> ShadowCollection:
    """The most that one window of the study may do."""
    return ShadowCollection(
        maximum_logical_executions=shape.cases * shape.replicates * profiles,
        maximum_concurrency=shape.concurrency * (profiles if shape.overlap else 1),
        attempt_timeout_ms=ATTEMPT_TIMEOUT_MS,
        maximum_attempts=MAXIMUM_ATTEMPTS,
    )


def study_record(
    rules: Comparison | ExperimentProtocol,
    shape: Shape,
    endpoints: Sequence[EndpointFile],
    *,
    cases: Path,
    cases_format: CaseFormat,
    window_class: Literal["observation", "decisive"],
) -> Study:
    """The record of ``study.toml``; a window is as long as the worst case of what was asked for.

    Args:
        rules: the comparison or protocol.
        shape: how it collects.
        endpoints: in the order of the rules' profiles.
        cases: the operator's file.
        cases_format: how its lines are written.
        window_class: default of a new window.
    """
    kind: Literal["comparison", "decision"] = "comparison" if isinstance(rules, Comparison) else "decision"
    isolation: Literal["serial", "overlap"] = "overlap" if shape.overlap else "serial"
    profiles = len(rules.profiles)
    calls = shape.cases * shape.replicates * MAXIMUM_ATTEMPTS + shape.warm_up
    in_flight = shape.concurrency * (profiles if shape.overlap else 1)
    worst_minutes = max(calls * profiles / in_flight, calls / shape.concurrency) * ATTEMPT_TIMEOUT_MS / 60_000
    decides = kind == "decision"
    return Study(
        study_id=rules.study_id,
        kind=kind,
        owner=rules.owner,
        protocol=RULES_FILE[kind],
        trust_policy=TRUST_POLICY,
        analysis_plan=ANALYSIS_PLAN if decides else None,
        cost_model=COST_MODEL if decides and rules.cost_allocation.kind == "modeled" else None,
        evaluator_trust=EVALUATOR_TRUST if decides else None,
        cases=str(cases.absolute()),
        cases_format=cases_format,
        keys=StudyKeys(
            payload_hmac="keyfile:payload-hmac.key",
            journal_hmac="keyfile:journal-hmac.key",
            dispatch_signing="keyfile:dispatch.key",
            collector_signing="keyfile:collector.key",
            payload_key_id=f"{rules.study_id[:100]}-payload-1",
        ),
        targets=tuple(
            StudyTarget(
                profile_id=profile.id,
                endpoint=f"endpoints/{endpoint.alias}.toml",
                route=shape.route.value,
                framing=shape.framing.value,
                lane_width=shape.concurrency,
            )
            for profile, endpoint in zip(rules.profiles, endpoints, strict=True)
        ),
        window=StudyWindow(
            minutes=float(math.ceil(worst_minutes + 2)), watermark_minutes=5.0, window_class=window_class
        ),
        generation=GenerationRule(
            maximum_output_tokens=shape.maximum_output_tokens,
            temperature=0.0,
            seed=None if shape.route is Route.RESPONSES else shape.seed,
        ),
        load_model=ClosedLoad(kind="closed", concurrency=shape.concurrency),
        pair_isolation=isolation,
        warm_up_calls_per_profile=shape.warm_up,
        http_limits=HttpLimits(
            max_response_bytes=RESPONSE_BYTES,
            headers_timeout_ms=ATTEMPT_TIMEOUT_MS,
            body_timeout_ms=ATTEMPT_TIMEOUT_MS,
            deadline_ms=ATTEMPT_TIMEOUT_MS,
        ),
    )


@dataclass(frozen=True, slots=True)
class StudyFiles:
    """Everything that a study's folder holds when it is made."""

    study: Study
    rules: Comparison | ExperimentProtocol
    trust_policy: CollectorTrustPolicy
    endpoints: Sequence[EndpointFile]
    records: Mapping[str, Record]
    """Further JSON records by their name in the folder."""
    answers: Record | None = None
    fork: StudyFork | None = None

    def write(self, folder: Path) -> None:
        """Write every file; ``study.toml`` comes last, so a folder that has it is complete."""
        make_folder(folder / "endpoints")
        for endpoint in self.endpoints:
            write_file(folder / f"endpoints/{endpoint.alias}.toml", dump_toml(endpoint, _ENDPOINT_COMMENTS))
        written: dict[str, Record] = {
            self.study.trust_policy: self.trust_policy,
            self.study.protocol: self.rules,
            **self.records,
        }
        if self.fork is not None:
            written[FORK] = self.fork
        if any(name.startswith(f"{POLICIES}/") for name in written):
            make_folder(folder / POLICIES)
        for name, record in written.items():
            write_file(folder / name, record.canonical() + b"\n")
        if self.answers is not None:
            write_file(folder / ANSWERS, dump_toml(self.answers, _ANSWER_COMMENTS))
        write_file(folder / "study.toml", dump_toml(self.study, _STUDY_COMMENTS))


_ENDPOINT_COMMENTS = {
    "origin": "Where the server is. It stands only here and in the trust policy; evidence names the alias.",
    "runtime_basis": "How each value is known: observed on the wire, declared by you, computed by a launch plan, or unknown.",
    "configuration_digest": "Identity of the server's configuration. Change it whenever you change the server.",
}
_STUDY_COMMENTS = {
    "protocol": "The comparison or protocol: profiles, rules, ceilings. It is digested; a change makes a new study.",
    "cases": "Your own file. Only the collecting step reads it; nothing of it is stored.",
    "keys": "References of the keys that collecting needs; the keys themselves lie in the state folder's keys/.",
    "window": "Defaults of a new window. It closes as soon as every planned execution is final.",
}
_ANSWER_COMMENTS = {
    "left_at_default": "Answers that nobody gave; every other value below was declared by you.",
    "evaluator": "Whose scores count. They are made elsewhere; nothing here computes one.",
    "route_signal": "What a router would decide on, for the cascade policies.",
    "gates": "What a policy must reach.",
    "cost": "What a profile's calls cost; the result is modeled, never measured.",
}
