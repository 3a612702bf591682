"""Request shapes and small table helpers that several runtimes share.

A runtime module names what it shares; what is its own stands in its own module.
"""

from __future__ import annotations

from collections.abc import Mapping

from tasc_collector.runtimes.profile import (
    Capability,
    CapabilityClaim,
    CapabilityState,
    Dependency,
    Evidence,
    Framing,
    GenerationField,
    Reference,
)

JSON_SSE = (Framing.JSON, Framing.SSE)
ASK_USAGE = {"stream_options": {"include_usage": True}}
"""Usage must be asked for: without it no stream of these servers ends with one."""
NO_SEED_NO_STOP = frozenset({GenerationField.SEED, GenerationField.STOP})
"""The Responses dialect has neither."""

BACKEND, MODEL, CONFIGURATION = Dependency.BACKEND, Dependency.MODEL, Dependency.CONFIGURATION


def same_path(path: str) -> Mapping[Framing, str]:
    """One path for whole and streamed answers."""
    return dict.fromkeys(JSON_SSE, path)


class Claims:
    """Writes the claims of one build with few words.

    Args:
        base: address of the build's source tree or documents.
        title: what that is.
        evidence: how claims are known unless they say otherwise.
    """

    def __init__(self, base: str, title: str, evidence: Evidence) -> None:
        self._base, self._title, self._evidence = base, title, evidence

    def _claim(
        self,
        state: CapabilityState,
        reason: str,
        page: str,
        depends_on: tuple[Dependency, ...],
        requirement: str | None,
        evidence: Evidence | None,
    ) -> CapabilityClaim:
        reference = Reference(f"{self._title}: {page}" if page else self._title, self._base + page)
        return CapabilityClaim(state, reason, reference, evidence or self._evidence, depends_on, requirement)

    def supported(self, reason: str, page: str = "", evidence: Evidence | None = None) -> CapabilityClaim:
        """The pinned build has it."""
        return self._claim(CapabilityState.SUPPORTED, reason, page, (), None, evidence)

    def conditional(
        self,
        reason: str,
        page: str = "",
        *depends_on: Dependency,
        requirement: str | None = None,
        evidence: Evidence | None = None,
    ) -> CapabilityClaim:
        """It depends on model, backend or configuration."""
        return self._claim(CapabilityState.CONDITIONAL, reason, page, depends_on, requirement, evidence)

    def unsupported(self, reason: str, page: str = "", evidence: Evidence | None = None) -> CapabilityClaim:
        """The pinned build does not have it."""
        return self._claim(CapabilityState.UNSUPPORTED, reason, page, (), None, evidence)

    def unknown(self, reason: str, page: str = "", evidence: Evidence | None = None) -> CapabilityClaim:
        """Nobody established it."""
        return self._claim(CapabilityState.UNKNOWN, reason, page, (), None, evidence)


def all_unknown(reason: str, reference: Reference) -> Mapping[Capability, CapabilityClaim]:
    """A claim of ``unknown`` for every capability: what an operator's own build starts with."""
    claim = CapabilityClaim(CapabilityState.UNKNOWN, reason, reference, Evidence.OPERATOR)
    return dict.fromkeys(Capability, claim)
