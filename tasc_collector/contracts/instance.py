"""Which running server is meant: operator-declared identity of a runtime instance (original project, section 3.9)."""

from __future__ import annotations

from typing import Annotated

from pydantic import StringConstraints

from tasc_collector.contracts.base import Model
from tasc_collector.contracts.scalars import Build, Digest, ModelId, Slug

InstanceText = Annotated[str, StringConstraints(min_length=1, max_length=512)]


class RuntimeBuild(Model):
    """A runtime (wire dialect) and its pinned build."""

    profile_id: Slug
    build: Build


class BackendBuild(Model):
    """The compute backend below the runtime, such as ``cuda`` ``13.0``."""

    name: InstanceText
    build: InstanceText


class ModelRevision(Model):
    """The model id as it goes on the wire, and its revision."""

    id: ModelId
    revision: ModelId


class RuntimeInstance(Model):
    """What the operator declares to run behind an endpoint. Declared, never taken for what a server reported."""

    endpoint_descriptor_digest: Digest
    """The endpoint binding digest; the original project's name for it is kept."""
    runtime: RuntimeBuild
    backend: BackendBuild
    model: ModelRevision
    configuration_digest: Digest
