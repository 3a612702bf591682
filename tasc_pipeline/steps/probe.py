"""One probe of one endpoint of a study: everything that the state folder holds, put together; the receipt is stored."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from tasc_collector.contracts.receipt import CapabilityReceipt
from tasc_collector.contracts.scalars import timestamp_of_ms
from tasc_collector.errors import InputError
from tasc_collector.limits import RECEIPT_HOURS
from tasc_collector.probes.canaries import CANARIES, CanaryPlace, passive_reads
from tasc_collector.probes.receipts import PROBED, Issuer, probe
from tasc_collector.runtimes.profile import Capability, Effect, Framing, Route
from tasc_collector.secrets import process_secrets
from tasc_collector.transport.clock import Clock, SystemClock
from tasc_collector.transport.network import NetworkAccess
from tasc_pipeline.home import keys, receipts
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.studies import LoadedStudy, load_study
from tasc_pipeline.steps.spending import ProbeWord, canary_cost, probe_reserved
from tasc_pipeline.steps.subjects import subject_of


@dataclass(frozen=True, slots=True)
class ProbeOptions:
    """How a probe differs from the study's own way of calling.

    Args:
        effect: the effect that the operator names.
        route: inference route of a canary; the study's, or the capability's own, if None.
        framing: framing of its answer; the study's if None.
        valid_hours: how long the receipt holds.
        word: the standing authorization, where no person started the probe.
    """

    effect: Effect
    route: Route | None = None
    framing: Framing | None = None
    valid_hours: float = RECEIPT_HOURS
    word: ProbeWord | None = None


@dataclass(frozen=True, slots=True)
class StoredProbe:
    """What a probe left.

    Args:
        profile_id: execution profile of the endpoint.
        receipt: the signed receipt.
        path: where it is.
    """

    profile_id: str
    receipt: CapabilityReceipt
    path: Path


def probe_endpoint(
    home: Home,
    study_id: str,
    alias: str,
    capability: Capability,
    options: ProbeOptions,
    *,
    tell: Callable[[str], None] = lambda _: None,
    clock: Clock | None = None,
    network: NetworkAccess | None = None,
) -> StoredProbe:
    """Probe one capability of one endpoint, sign the receipt with the collector's key, and store it.

    Args:
        home: the state folder.
        study_id: the study.
        alias: alias of one of its endpoints.
        capability: what is to be shown.
        options: effect, route, framing and validity.
        tell: is told what will be sent at most, before anything is.
        clock: both clocks; the system's if None.
        network: lookups and sockets; the system's if None.

    Raises:
        NotAuthorized: effect, policy, profile, residency or the standing authorization forbids it; nothing was sent.
        InputError: no such endpoint, or the route cannot ask for this; nothing was sent.
    """
    clock = clock or SystemClock()
    loaded = load_study(home, study_id)
    profile_id = _profile_id(loaded, alias)
    if capability not in PROBED:
        raise InputError(
            "this capability has no probe",
            where=alias,
            field=capability.value,
            way_out="choose one of " + ", ".join(PROBED),
        )
    place = _place(home, loaded, profile_id, capability, options)
    issuer = _issuer(home, loaded, timestamp_of_ms(clock.wall_ns() // 1_000_000), options.valid_hours)
    tell(_cost_text(place, capability, options.effect))
    with _paid(home, loaded, profile_id, capability, place.route, options, clock):
        receipt = asyncio.run(probe(place, capability, options.effect, issuer, clock=clock, network=network))
    return StoredProbe(profile_id, receipt, receipts.store(home, receipt))


def _cost_text(place: CanaryPlace, capability: Capability, effect: Effect) -> str:
    """What a probe sends at most, in one line."""
    canary, alias = CANARIES.get(capability), place.subject.alias
    if canary is None:
        return f"asks for one read of {alias} ({effect})"
    reads = passive_reads(place.subject.profile, capability)
    beside = f", beside at most {reads} passive read(s)" if reads else ""
    return f"asks for {canary.calls} inference call(s) of {alias}, at most {canary.most_tokens} output tokens{beside}"


def _paid(
    home: Home,
    loaded: LoadedStudy,
    profile_id: str,
    capability: Capability,
    route: Route,
    options: ProbeOptions,
    clock: Clock,
) -> AbstractContextManager[None]:
    """The reservation of a probe under a standing authorization; nothing where a person named the effect."""
    if options.word is None:
        return nullcontext()
    canary, generates = CANARIES.get(capability), options.effect is Effect.INFERENCE_CANARY
    calls = canary.calls if canary is not None else int(generates)
    wanted = canary_cost(loaded, profile_id, calls, canary.most_tokens if canary is not None else calls)
    as_of = timestamp_of_ms(clock.wall_ns() // 1_000_000)
    return probe_reserved(home, loaded, options.word, profile_id, route.value, options.effect.value, wanted, as_of)


def _profile_id(loaded: LoadedStudy, alias: str) -> str:
    for profile_id, endpoint in loaded.endpoints.items():
        if endpoint.alias == alias:
            return profile_id
    known = ", ".join(sorted({endpoint.alias for endpoint in loaded.endpoints.values()}))
    raise InputError(
        "the study has no endpoint with this alias",
        where=loaded.study.study_id,
        field=alias[:64],
        way_out=f"use one of {known}",
    )


def _place(
    home: Home, loaded: LoadedStudy, profile_id: str, capability: Capability, options: ProbeOptions
) -> CanaryPlace:
    study, subject, target = loaded.study, subject_of(home, loaded, profile_id), loaded.target(profile_id)
    own = Route(capability.value) if capability.value in set(Route) else None
    route = options.route or own or Route(target.route)
    invocation = subject.profile.routes.get(route)
    framing = options.framing or Framing(target.framing)
    if invocation is None or (options.framing is not None and framing not in invocation.framings):
        if capability in CANARIES:
            known = ", ".join(f"{name} ({', '.join(item.framings)})" for name, item in subject.profile.routes.items())
            raise InputError(
                "the build has no such route and framing",
                where=subject.alias,
                field=route.value,
                way_out=f"choose one of {known}",
            )
    elif framing not in invocation.framings:
        framing = invocation.framings[-1]
    return CanaryPlace(
        subject,
        route,
        framing,
        study.http_limits,
        keys.payload_key(home, study.study_id, study.keys.payload_key_id, study.keys.payload_hmac),
        process_secrets(home.keys),
        "command-line",
    )


def _issuer(home: Home, loaded: LoadedStudy, at: str, valid_hours: float) -> Issuer:
    """The collector's key, by its public half in the ring."""
    key = keys.signing_key(home, loaded.study.keys.collector_signing)
    for entry in keys.read_ring(home).keys:
        if entry.role == "collector" and entry.public_key_spki == key.public_key.spki and keys.is_valid(entry, at):
            return Issuer(key, entry.key_id, valid_hours)
    raise InputError(
        "the collector key is not valid in the key ring",
        where=loaded.study.study_id,
        field="keys.collector_signing",
        way_out="run: tasc keys list",
    )
