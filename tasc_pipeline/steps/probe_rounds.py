"""A round of passive probes over a study, and when the next one, or a canary of a conditional route, is due."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tasc_collector.contracts.scalars import timestamp_ms
from tasc_collector.errors import NotAuthorized
from tasc_collector.limits import RECEIPT_HOURS
from tasc_collector.probes.observations import KIND_OF
from tasc_collector.runtimes.profile import Capability, CapabilityState, Effect
from tasc_pipeline.home import keys, receipts
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.studies import LoadedStudy, load_study
from tasc_pipeline.steps.admission import conditional_routes, endpoint_profile, scope_of
from tasc_pipeline.steps.endpoints import EndpointsView, versions_digest
from tasc_pipeline.steps.probe import ProbeOptions, StoredProbe, probe_endpoint
from tasc_pipeline.steps.watch import counted

DUE_SHARE = 0.75
"""A receipt is due for renewal when this share of its validity is over."""


@dataclass(frozen=True, slots=True)
class RefusedProbe:
    """A passive probe that was refused before anything was sent."""

    alias: str
    capability: str
    why: str


@dataclass(frozen=True, slots=True)
class ProbeRound:
    """What a round left.

    Args:
        stored: receipts, whatever they say.
        refused: what the policy does not allow.
    """

    stored: tuple[StoredProbe, ...]
    refused: tuple[RefusedProbe, ...]


def probe_passively(home: Home, study_id: str, *, valid_hours: float = RECEIPT_HOURS) -> ProbeRound:
    """Make every non-mutating observation of every endpoint of a study; each leaves one signed receipt.

    A server that does not answer is an observation, too. What the policy does not list is refused and not sent.

    Args:
        home: the state folder.
        study_id: the study.
        valid_hours: how long the receipts hold.

    Raises:
        InputError: no such study, or a file breaks a rule; nothing was sent.
    """
    options = ProbeOptions(Effect.NON_MUTATING, valid_hours=valid_hours)
    stored: list[StoredProbe] = []
    refused: list[RefusedProbe] = []
    wanted = tuple(passive_probes(home, load_study(home, study_id)))
    tell = counted(f"probing {study_id}", len(wanted))
    for alias, capability in wanted:
        try:
            stored.append(probe_endpoint(home, study_id, alias, capability, options))
        except NotAuthorized as error:
            refused.append(RefusedProbe(alias, capability.value, str(error)))
        tell(1)
    return ProbeRound(tuple(stored), tuple(refused))


def passive_probes(home: Home, loaded: LoadedStudy) -> Iterator[tuple[str, Capability]]:
    """Alias and capability of every observation that only reads, at the pinned builds."""
    for endpoint in loaded.endpoints.values():
        profile = endpoint_profile(home, endpoint)
        for capability, kind in KIND_OF.items():
            route = profile.observation(kind)
            if route is None or profile.state(capability) is CapabilityState.UNSUPPORTED:
                continue
            if route.required_effect is Effect.NON_MUTATING:
                yield endpoint.alias, capability


def due_canaries(home: Home, loaded: LoadedStudy, as_of: str) -> dict[str, str]:
    """Conditional routes of a study that need a new canary receipt soon: alias to route.

    A route is due where no receipt admits it, or the newest one has used up most of its validity.

    Args:
        home: the state folder.
        loaded: the study.
        as_of: the wall clock.
    """
    found = receipts.stored(home, keys.read_ring(home)).receipts
    due: dict[str, str] = {}
    for profile_id in conditional_routes(home, loaded):
        scope, target = scope_of(loaded, profile_id), loaded.target(profile_id)
        admitting = [item for item in found if scope.admitted_by(item) and item.observed_at <= as_of]
        if not admitting or _worn(admitting[-1].observed_at, admitting[-1].valid_until, as_of):
            due[loaded.endpoints[profile_id].alias] = target.route
    return due


def _worn(observed_at: str, valid_until: str, as_of: str) -> bool:
    """Whether most of a validity is over."""
    start, end = timestamp_ms(observed_at), timestamp_ms(valid_until)
    return timestamp_ms(as_of) - start >= DUE_SHARE * (end - start)


def due_studies(view: EndpointsView, as_of: str) -> dict[str, str]:
    """Studies whose passive receipts should be renewed, each with a digest of what is known of it now.

    A study is due where an endpoint has no passive receipt, or one of them has used up most of its validity.

    Args:
        view: what is known.
        as_of: the wall clock.
    """
    passive = [line for line in view.lines if line.capability in set(KIND_OF)]
    seen = {(line.study_id, line.alias) for line in passive}
    due = {study for study, alias in view.endpoints if (study, alias) not in seen}
    for line in passive:
        if _worn(line.observed_at, line.valid_until, as_of):
            due.add(line.study_id)
    return {study: versions_digest(line for line in passive if line.study_id == study) for study in sorted(due)}
