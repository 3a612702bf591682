"""What exactly serves the model: the execution profile of a study (original project, section 3.1)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from tasc_collector.contracts.base import Model, Record
from tasc_collector.contracts.scalars import Digest, Slug, Text

OrchestrationKind = Literal["direct", "ray-serve", "skypilot", "skyserve", "kubernetes", "other"]


class NamedBuild(Model):
    """A runtime or backend and its build."""

    name: Slug
    build: Text


class Revision(Model):
    """A model or tokenizer and its revision."""

    id: Text
    revision: Text


class Hardware(Model):
    """The machine's processor and accelerators."""

    architecture: Slug
    accelerator: Slug
    accelerator_count: Annotated[int, Field(ge=1, le=1024)]


class Quantization(Model):
    """Weight format and the digest of its configuration."""

    format: Slug
    configuration_digest: Digest


class Orchestration(Model):
    """What keeps the server running and the digest of its configuration."""

    kind: OrchestrationKind
    configuration_digest: Digest


class ExecutionProfile(Record):
    """Identity of one serving configuration; its digest stands in every trace."""

    domain: ClassVar[str] = "tasc/execution-profile/v2"

    id: Slug
    runtime: NamedBuild
    backend: NamedBuild
    model: Revision
    tokenizer: Revision
    hardware: Hardware
    quantization: Quantization
    chat_template_digest: Digest
    orchestration: Orchestration
    deployment_configuration_digest: Digest
