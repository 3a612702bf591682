"""A study's folder, read as a whole and cross-checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tasc_collector.contracts.base import Parsed
from tasc_collector.contracts.comparison import Comparison
from tasc_collector.contracts.descriptor import EndpointDescriptor, endpoint_binding
from tasc_collector.contracts.network_extension import NetworkExtension
from tasc_collector.contracts.operations import AnalysisPlan, CostModel
from tasc_collector.contracts.policy import PolicyBundle
from tasc_collector.contracts.protocol import ExperimentProtocol
from tasc_collector.contracts.study import EndpointFile, Study, StudyFork, StudyTarget
from tasc_collector.contracts.trust_policy import CollectorTrustPolicy
from tasc_collector.contracts.trust_snapshot import EvaluatorTrustSnapshot
from tasc_collector.errors import InputError, TascError
from tasc_collector.wire.records import read_record_file
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.toml_records import read_toml

POLICIES = "policies"
"""Folder of a decision study's policy bundles: the control and every candidate policy of the protocol's space."""
FORK = "fork.json"
"""What a successor changed, and of which study."""


@dataclass(frozen=True, slots=True)
class LoadedStudy:
    """Everything a study's folder says."""

    folder: Path
    study: Study
    comparison: Parsed[Comparison] | None
    protocol: Parsed[ExperimentProtocol] | None
    policy: Parsed[CollectorTrustPolicy]
    endpoints: dict[str, EndpointFile]
    """By profile id."""
    bindings: dict[str, str]
    """Endpoint binding digest by profile id."""
    extension: Parsed[NetworkExtension] | None
    analysis: Parsed[AnalysisPlan] | None
    cost_model: Parsed[CostModel] | None
    descriptors: dict[str, str] = field(default_factory=dict)
    """Digest of the orchestration descriptor by profile id, for endpoints that have one."""
    policies: dict[str, PolicyBundle] = field(default_factory=dict)
    """Policy bundles of a decision study by their digest."""
    evaluator_trust: Parsed[EvaluatorTrustSnapshot] | None = None
    """Which evaluator keys a decision study trusts."""
    fork: StudyFork | None = None
    """Set where the study is a successor of another."""

    def descriptor_digest(self, profile_id: str) -> str | None:
        """Digest of the orchestration descriptor of a profile's endpoint, if it has one."""
        return self.descriptors.get(profile_id)

    @property
    def rules(self) -> Comparison | ExperimentProtocol:
        """The comparison or the protocol."""
        found = self.comparison or self.protocol
        assert found is not None  # noqa: S101 - load_study reads exactly one of them
        return found.record

    @property
    def protocol_digest(self) -> str:
        """Digest of the comparison or the protocol."""
        return self.rules.digest

    @property
    def cost_model_digest(self) -> str | None:
        """Digest of the cost model, if the study names one."""
        return None if self.cost_model is None else self.cost_model.record.digest

    @property
    def minimum_coverage(self) -> float:
        """Share of planned executions that must be known."""
        if self.comparison is not None:
            return self.comparison.record.rule.minimum_coverage
        return self.protocol.record.gates.minimum_evidence_coverage if self.protocol is not None else 1.0

    def target(self, profile_id: str) -> StudyTarget:
        """The study's target of a profile."""
        return {target.profile_id: target for target in self.study.targets}[profile_id]

    @property
    def cases_path(self) -> Path:
        """The operator's case file; a relative name is relative to the study's folder."""
        path = Path(self.study.cases)
        return path if path.is_absolute() else self.folder / path


def study_ids(home: Home) -> list[str]:
    """Ids of all studies."""
    folder = home.root / "studies"
    return (
        sorted(entry.name for entry in folder.iterdir() if (entry / "study.toml").is_file()) if folder.is_dir() else []
    )


def studies_naming(home: Home, key_id: str) -> list[str]:
    """Ids of the readable studies whose dispatch or collector key has this id."""
    found = []
    for study_id in study_ids(home):
        try:
            rules = load_study(home, study_id).rules
        except TascError:
            continue  # whoever uses that study is told what is wrong with it
        if key_id in (rules.dispatch_authority.key_id, rules.collector_authority.key_id):
            found.append(study_id)
    return found


def load_study(home: Home, study_id: str) -> LoadedStudy:
    """Read a study.

    Raises:
        InputError: a file is missing or breaks a rule, or two files disagree; names both.
    """
    folder = home.study(study_id)
    if not (folder / "study.toml").is_file():
        known = ", ".join(study_ids(home)) or "none"
        raise InputError(
            f"there is no such study (known: {known})", where=study_id, way_out="make one with: tasc study new"
        )
    study = read_toml(Study, folder / "study.toml")
    where = str(folder / "study.toml")
    if study.study_id != study_id:
        raise InputError(
            "the study's id is not its folder's name",
            where=where,
            field="study_id",
            way_out="rename the folder or correct the id",
        )
    rules_path = folder / study.protocol
    comparison = read_record_file(Comparison, rules_path) if study.kind == "comparison" else None
    protocol = read_record_file(ExperimentProtocol, rules_path) if study.kind == "decision" else None
    policy = read_record_file(CollectorTrustPolicy, folder / study.trust_policy)
    loaded = LoadedStudy(
        folder,
        study,
        comparison,
        protocol,
        policy,
        {},
        {},
        None
        if study.network_extension is None
        else read_record_file(NetworkExtension, folder / study.network_extension),
        None if study.analysis_plan is None else read_record_file(AnalysisPlan, folder / study.analysis_plan),
        None if study.cost_model is None else read_record_file(CostModel, folder / study.cost_model),
        policies=_policies(folder / POLICIES),
        evaluator_trust=None
        if study.evaluator_trust is None
        else read_record_file(EvaluatorTrustSnapshot, folder / study.evaluator_trust),
        fork=read_record_file(StudyFork, folder / FORK).record if (folder / FORK).is_file() else None,
    )
    if loaded.rules.study_id != study_id:
        raise InputError(
            "this file belongs to another study",
            where=str(rules_path),
            field="studyId",
            way_out="use the study's own file",
        )
    profiles = {profile.id for profile in loaded.rules.profiles}
    if {target.profile_id for target in study.targets} != profiles:
        raise InputError(
            "targets do not name exactly the profiles of " + study.protocol,
            where=where,
            field="targets",
            way_out="give each profile one target",
        )
    for target in study.targets:
        _load_endpoint(loaded, target)
    return loaded


def _policies(folder: Path) -> dict[str, PolicyBundle]:
    files = sorted(folder.glob("*.json")) if folder.is_dir() else []
    found = [read_record_file(PolicyBundle, path).record for path in files]
    return {policy.policy_digest: policy for policy in found}


def _load_endpoint(loaded: LoadedStudy, target: StudyTarget) -> None:
    path = loaded.folder / target.endpoint
    endpoint = read_toml(EndpointFile, path)
    trusted = loaded.policy.record.endpoint(endpoint.alias)
    if trusted is None or trusted.origin != endpoint.origin or trusted.runtime != endpoint.runtime:
        raise InputError(
            "the trust policy has no endpoint with this alias, origin, runtime and build",
            where=str(path),
            field="alias",
            way_out=f"correct the file, or the endpoint in {loaded.study.trust_policy}",
        )
    profile = {profile.id: profile for profile in loaded.rules.profiles}[target.profile_id]
    for name, said, wanted in (
        (
            "runtime",
            (endpoint.runtime.profile_id, endpoint.runtime.build),
            (profile.runtime.name, profile.runtime.build),
        ),
        ("backend", (endpoint.backend.name, endpoint.backend.build), (profile.backend.name, profile.backend.build)),
        ("model", (endpoint.model.id, endpoint.model.revision), (profile.model.id, profile.model.revision)),
        ("configuration_digest", endpoint.configuration_digest, profile.deployment_configuration_digest),
    ):
        if said != wanted:
            raise InputError(
                f"differs from execution profile {profile.id}",
                where=str(path),
                field=name,
                way_out="correct the file, or make a new study: tasc study new",
            )
    descriptor = (
        None
        if endpoint.descriptor is None
        else read_record_file(EndpointDescriptor, loaded.folder / endpoint.descriptor).record
    )
    loaded.endpoints[target.profile_id] = endpoint
    loaded.bindings[target.profile_id] = endpoint_binding(trusted, descriptor)
    if descriptor is not None:
        loaded.descriptors[target.profile_id] = descriptor.digest
