"""The files a person writes: ``study.toml`` (``tasc-study-v1``) and one endpoint file per server.

A study is a folder of small TOML and JSON files kept in git. It names where cases and keys are; it holds neither.
TOML keys are the Python names; the digest is over the camelCase JSON form.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from tasc_collector.contracts.base import Model, Record
from tasc_collector.contracts.collection import Framing, GenerationRule, LoadModel, Route
from tasc_collector.contracts.http_limits import HttpLimits
from tasc_collector.contracts.instance import BackendBuild, ModelRevision, RuntimeBuild
from tasc_collector.contracts.rules import require, require_unique
from tasc_collector.contracts.scalars import Digest, Reference, Slug, Text, Timestamp

FileName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,254}$")]
"""A path inside the study's folder."""
Basis = Literal["observed", "declared", "launch-plan", "unknown"]
"""How a value came to be known: seen on the wire, said by the operator, computed by a launch plan, or not at all."""


class StudyKeys(Model):
    """References of the keys that collecting needs; the operator's private key is not among them."""

    payload_hmac: Reference
    journal_hmac: Reference
    dispatch_signing: Reference
    collector_signing: Reference
    payload_key_id: Slug


class StudyTarget(Model):
    """Which endpoint and route a profile uses."""

    profile_id: Slug
    endpoint: FileName
    route: Route
    framing: Framing
    lane_width: Annotated[int, Field(ge=1, le=10_000)]


class StudyWindow(Model):
    """Defaults of a new window."""

    minutes: Annotated[float, Field(gt=0.0, le=44_640.0, allow_inf_nan=False)]
    watermark_minutes: Annotated[float, Field(ge=0.0, le=44_640.0, allow_inf_nan=False)]
    window_class: Literal["observation", "decisive"]


class Study(Record):
    """``tasc-study-v1``."""

    domain: ClassVar[str] = "tasc/study/v1"

    version: Literal["tasc-study-v1"] = "tasc-study-v1"
    study_id: Slug
    kind: Literal["comparison", "decision"]
    owner: Text
    protocol: FileName
    """File of the comparison or protocol."""
    trust_policy: FileName
    network_extension: FileName | None = None
    analysis_plan: FileName | None = None
    cost_model: FileName | None = None
    evaluator_trust: FileName | None = None
    """File of the evaluator trust snapshot of a decision study."""
    cases: Annotated[str, StringConstraints(min_length=1, max_length=4096)]
    """The operator's own case file; only the collecting step reads it."""
    cases_format: Literal["tasc", "openai-messages", "openai-batch", "text-lines"]
    keys: StudyKeys
    targets: Annotated[tuple[StudyTarget, ...], Field(min_length=2, max_length=16)]
    window: StudyWindow
    generation: GenerationRule
    load_model: LoadModel
    pair_isolation: Literal["serial", "overlap"]
    warm_up_calls_per_profile: Annotated[int, Field(ge=0, le=1_000)]
    http_limits: HttpLimits = HttpLimits()


class EndpointFile(Record):
    """``tasc-endpoint-v1``: one server as the operator knows it, each value with its basis."""

    domain: ClassVar[str] = "tasc/endpoint/v1"

    version: Literal["tasc-endpoint-v1"] = "tasc-endpoint-v1"
    alias: Slug
    origin: Annotated[str, StringConstraints(min_length=8, max_length=2048)]
    runtime: RuntimeBuild
    runtime_basis: Basis
    wire_base: RuntimeBuild | None = None
    backend: BackendBuild
    backend_basis: Basis
    model: ModelRevision
    model_basis: Basis
    configuration_digest: Digest
    configuration_basis: Basis
    authentication_reference: Slug | None = None
    authentication_header: Literal["authorization", "x-api-key"] | None = None
    authentication_secret: Reference | None = None
    descriptor: FileName | None = None
    """Endpoint descriptor file, where an orchestrator stands in front."""


class StudyChange(Model):
    """One field that a successor changed, in its canonical JSON text; null where it was, or is, absent."""

    field: Text
    before: Annotated[str, StringConstraints(max_length=4096)] | None
    after: Annotated[str, StringConstraints(max_length=4096)] | None


class StudyFork(Record):
    """``tasc-study-fork-v1``: a study that goes on from another one, and what it changed.

    ``lineage_id`` is the id of the first study of the line; an analyst unites all successors by it.
    """

    domain: ClassVar[str] = "tasc/study-fork/v1"

    version: Literal["tasc-study-fork-v1"] = "tasc-study-fork-v1"
    study_id: Slug
    lineage_id: Slug
    predecessor_study_id: Slug
    predecessor_digest: Digest
    """Digest of the predecessor's comparison or protocol."""
    protocol_digest: Digest
    """Digest of this study's own comparison or protocol."""
    changes: Annotated[tuple[StudyChange, ...], Field(min_length=1, max_length=256)]
    forked_at: Timestamp

    @model_validator(mode="after")
    def _rules(self) -> Self:
        require(self.study_id != self.predecessor_study_id, "a successor has an id of its own")
        require(self.protocol_digest != self.predecessor_digest, "a successor has a comparison or protocol of its own")
        require_unique((change.field for change in self.changes), "changes: a field stands once")
        return self
