"""``tasc-build-profile-v1``: an operator adds a build of a registered runtime."""

from __future__ import annotations

from typing import ClassVar, Literal

from tasc_collector.contracts.base import Model, Record
from tasc_collector.contracts.scalars import Build, Slug, Timestamp

RuntimeId = Literal["llama.cpp", "lm-studio", "mlx-lm", "ollama", "sglang", "tensorrt-llm", "tgi", "vllm"]
"""Registered runtimes."""


class WireBase(Model):
    """The registered build whose wire tables are borrowed."""

    runtime: RuntimeId
    build: Build


class BuildProfile(Record):
    """One more build of a runtime. It claims nothing: every capability is unknown until a signed receipt shows it.

    Attributes:
        version: schema id.
        runtime: the runtime.
        build: the build that is added.
        wire_base: the registered build of the same runtime that it is assumed to speak like.
        declared_by: id of the operator who says so.
        created_at: when.
    """

    domain: ClassVar[str] = "tasc/build-profile/v1"

    version: Literal["tasc-build-profile-v1"]
    runtime: RuntimeId
    build: Build
    wire_base: WireBase
    declared_by: Slug
    created_at: Timestamp
