"""The engines, one module each. A sixth engine is one module with a ``SPEC`` and one line here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tasc_compute.contracts import EngineId
from tasc_compute.engines import exllamav3, llamacpp, mlx, sglang, vllm
from tasc_compute.engines.base import Dropped, EngineSpec, Knob

__all__ = ["ENGINES", "Dropped", "EngineSpec", "Knob", "engine"]

ENGINES: Final[Mapping[EngineId, EngineSpec]] = {
    spec.id: spec for spec in (vllm.SPEC, sglang.SPEC, llamacpp.SPEC, mlx.SPEC, exllamav3.SPEC)
}
"""Every engine by its id."""


def engine(engine_id: EngineId) -> EngineSpec:
    """The engine of an id."""
    return ENGINES[engine_id]
