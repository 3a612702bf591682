"""Refuses a server that would load, switch or forward the model instead of answering with the one that is meant.

Local runtimes do these things on a mere request: Ollama passes cloud models on to a remote host, LM Studio loads just in
time and may evict another model, MLX-LM loads or downloads whatever a request names. One passive read tells, and a
server that cannot be read is refused too: silence is no residency. A name that says it is refused without any read:
``require_local_name``, which a study's plan and its run ask for as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tasc_collector.errors import NotAuthorized
from tasc_collector.probes.judgement import Finding
from tasc_collector.probes.observations import Subject, observe
from tasc_collector.runtimes.profile import Effect, ObservationKind, ResidencyRule, RuntimeProfile
from tasc_collector.transport.clock import Clock
from tasc_collector.transport.network import NetworkAccess

_KINDS: Final[Mapping[ResidencyRule, ObservationKind]] = {
    ResidencyRule.LOCAL_ENTRY: ObservationKind.MODELS,
    ResidencyRule.LISTED: ObservationKind.MODELS,
    ResidencyRule.LOADED_INSTANCE: ObservationKind.MODEL_INFO,
}
_RULES: Final[Mapping[ResidencyRule, str]] = {
    ResidencyRule.LOCAL_ENTRY: "the model's entry names no remote host",
    ResidencyRule.LISTED: "the server lists the model, so that a call neither loads nor downloads another",
    ResidencyRule.LOADED_INSTANCE: "the server lists a loaded instance of the model, so that a call loads nothing",
}


async def require_resident(subject: Subject, *, clock: Clock, network: NetworkAccess | None = None) -> None:
    """Refuse a server by its profile's residency rule; a profile without one passes, and so does its own alias.

    Raises:
        NotAuthorized: the model is remote, not loaded or not there, or nothing tells. No inference was sent.
    """
    rule = subject.profile.residency
    model = subject.instance.model.id
    require_local_name(subject.profile, model, alias=subject.alias)
    if rule is None or model == subject.profile.resident_alias:
        return
    found = await observe(subject, _KINDS[rule], Effect.NON_MUTATING, clock=clock, network=network)
    good = found.state == "supported" and (rule is not ResidencyRule.LOADED_INSTANCE or _loaded(found, model))
    if not good:
        raise _refused(subject.alias, f"{_RULES[rule]} (seen: {found.reason})")


def require_local_name(profile: RuntimeProfile, model_id: str, *, alias: str) -> None:
    """Refuse a model whose name alone says that a remote host would answer. Nothing is read or sent.

    Raises:
        NotAuthorized: the name ends in one of the profile's remote suffixes.
    """
    if profile.passes_on(model_id):
        endings = " or ".join(profile.remote_suffixes)
        raise _refused(alias, f"a model whose name ends in {endings} is answered by a remote host")


def _loaded(found: Finding, model: str) -> bool:
    """Whether a loaded instance belongs to the model's own entry, or has its name."""
    facts = found.facts
    instances = [name for name in facts if ".loaded_instances." in name]
    own = {name.removesuffix(".key") for name, value in facts.items() if name.endswith(".key") and value == model}
    return any(name.split(".loaded_instances.")[0] in own or facts[name] == model for name in instances)


def _refused(alias: str, rule: str) -> NotAuthorized:
    return NotAuthorized(
        "this is no local endpoint of the model",
        where=alias,
        field="model",
        rule=rule,
        way_out="load or pull the model on this host, or correct the endpoint's model; then probe again",
    )
