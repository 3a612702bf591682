"""Which routes of a study need a capability receipt, which stored receipts a plan pins, and what they admit at run time.

Rules:

1. A route that is ``supported`` at the pinned build needs no receipt. Every other one, and every route of an operator's
   own build, needs one that ``probes.receipts`` says admits it.
2. A plan pins the admitting receipt, which must be valid until the last call of the window can have ended, and the newest
   valid receipt of every other capability of the same endpoint, so that what was known then stays on record.
3. At run time exactly the pinned receipts are loaded and verified again. Nothing is probed there.
4. A model that a remote host would answer is refused at planning and at run time, also on a supported route: by its name,
   and at planning where the newest valid receipt of any capability saw it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tasc_collector.contracts.collection import PlanTarget
from tasc_collector.contracts.receipt import CapabilityReceipt
from tasc_collector.contracts.scalars import timestamp_ms, timestamp_of_ms
from tasc_collector.contracts.study import EndpointFile
from tasc_collector.errors import InputError, NotAuthorized
from tasc_collector.invocation.admission import CapabilityAdmission
from tasc_collector.limits import MAX_CAPABILITY_RECEIPTS
from tasc_collector.probes.judgement import ProbeReason
from tasc_collector.probes.receipts import Scope, admit
from tasc_collector.probes.residency import require_local_name
from tasc_collector.runtimes.profile import Capability, CapabilityState, Framing, Route, RuntimeProfile
from tasc_pipeline.home import keys, receipts
from tasc_pipeline.home.builds import home_profile
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.receipts import StoredReceipts, probe_command
from tasc_pipeline.home.studies import LoadedStudy


def endpoint_profile(home: Home, endpoint: EndpointFile) -> RuntimeProfile:
    """The runtime profile of an endpoint: registered, or added by a build file of this state folder.

    Raises:
        InputError: nobody registered the build.
    """
    return home_profile(home, endpoint.runtime.profile_id, endpoint.runtime.build)


def conditional_routes(home: Home, loaded: LoadedStudy) -> dict[str, str]:
    """Profile id to the probe command, for every target whose route needs a receipt (rule 1).

    Raises:
        InputError: a build is not registered, has no such route, or does not stream it.
        NotAuthorized: a model's name says that a remote host would answer (rule 4).
    """
    needed: dict[str, str] = {}
    for target in loaded.study.targets:
        endpoint = loaded.endpoints[target.profile_id]
        profile = endpoint_profile(home, endpoint)
        require_local_name(profile, endpoint.model.id, alias=endpoint.alias)
        route = profile.routes.get(Route(target.route))
        if route is None or Framing(target.framing) not in route.framings:
            known = ", ".join(f"{name} ({', '.join(route.framings)})" for name, route in profile.routes.items())
            raise InputError(
                "the build has no such route and framing",
                where=loaded.study.study_id,
                field=f"targets.{target.profile_id}",
                way_out=f"choose one of {known}",
            )
        if profile.state(Capability(target.route)) is not CapabilityState.SUPPORTED:
            needed[target.profile_id] = probe_command(loaded.study.study_id, endpoint.alias, target.route)
    return needed


def select_receipts(
    home: Home, loaded: LoadedStudy, as_of: str, *, until: str | None = None
) -> dict[str, tuple[str, ...]]:
    """Digests of the receipts that a plan pins, by profile id (rule 2).

    Args:
        home: the state folder.
        loaded: the study.
        as_of: when the plan is issued.
        until: end of the window; a route's receipt must outlive it by one attempt. ``as_of`` if None.

    Raises:
        NotAuthorized: a route needs a receipt and there is none that admits it, or a receipt saw a remote model; says
            why, and names the command.
    """
    found = receipts.stored(home, keys.read_ring(home))
    last_call = timestamp_ms(until or as_of) + loaded.rules.shadow_collection.attempt_timeout_ms
    conditional = conditional_routes(home, loaded)
    pinned: dict[str, tuple[str, ...]] = {}
    for target in loaded.study.targets:
        scope = scope_of(loaded, target.profile_id)
        valid = [
            item
            for item in found.receipts
            if scope.differs(item) is None and item.observed_at <= as_of < item.valid_until
        ]
        _refuse_remote(loaded, target.profile_id, valid)
        admitting = [item for item in valid if scope.admitted_by(item)]
        chosen: dict[str, str] = {item.capability: item.digest for item in valid if not scope.admitted_by(item)}
        chosen.pop(target.route, None)
        kept = sorted(chosen.values())
        if target.profile_id in conditional:
            lasting = [item for item in admitting if timestamp_ms(item.valid_until) >= last_call]
            if not lasting:
                reason = _why_not(scope, found, admitting, as_of, timestamp_of_ms(last_call))
                raise NotAuthorized(
                    "this route is conditional at the pinned build and no receipt admits it",
                    where=loaded.study.study_id,
                    field=target.profile_id,
                    rule=reason,
                    way_out=f"run: {conditional[target.profile_id]}",
                )
            best = max(lasting, key=lambda item: (item.observed_at, item.digest))
            kept = [best.digest, *kept[: MAX_CAPABILITY_RECEIPTS - 1]]
        pinned[target.profile_id] = tuple(sorted(kept[:MAX_CAPABILITY_RECEIPTS]))
    return pinned


def admission(
    profile: RuntimeProfile, target: PlanTarget, pinned: Sequence[CapabilityReceipt], as_of: str
) -> CapabilityAdmission | None:
    """What the pinned receipts of a target admit at run time (rule 3); None for a route that needs none.

    Args:
        profile: the endpoint's profile.
        target: the plan's target.
        pinned: its receipts, verified.
        as_of: when the plan was issued.

    Returns:
        The admission; for a route that needs one and has none, None, which ``prepare`` refuses with the command.

    Raises:
        NotAuthorized: the model's name says that a remote host would answer (rule 4); nothing was sent.
    """
    require_local_name(profile, target.model.id, alias=target.endpoint_alias)
    if profile.state(Capability(target.route)) is CapabilityState.SUPPORTED:
        return None
    return admit(target, pinned, as_of)


def scope_of(loaded: LoadedStudy, profile_id: str) -> Scope:
    """What a receipt must be for to admit a profile's route."""
    endpoint, target = loaded.endpoints[profile_id], loaded.target(profile_id)
    return Scope(
        loaded.bindings[profile_id],
        endpoint.runtime,
        endpoint.backend,
        endpoint.model,
        endpoint.configuration_digest,
        target.route,
        target.framing,
    )


def _refuse_remote(loaded: LoadedStudy, profile_id: str, valid: Sequence[CapabilityReceipt]) -> None:
    """Rule 4 by receipts, oldest first: a model may be local by name and an alias of a remote one."""
    newest = {item.capability: item for item in valid}
    for capability, receipt in newest.items():
        if receipt.reason == ProbeReason.REMOTE_MODEL:
            study_id, alias = loaded.study.study_id, loaded.endpoints[profile_id].alias
            raise NotAuthorized(
                "this is no local endpoint of the model",
                where=study_id,
                field=profile_id,
                rule=f"its newest receipt of {capability} says {receipt.reason}",
                way_out="pull a model to this host, then run: "
                f"tasc probe {study_id}/{alias} {capability} --effect {receipt.effect}",
            )


def _why_not(
    scope: Scope, found: StoredReceipts, admitting: Sequence[CapabilityReceipt], as_of: str, needed: str
) -> str:
    """Why no stored receipt admits a route: the nearest miss first."""
    if admitting:
        return f"its receipt ends before the window's last call ({needed})"
    for_route = [item for item in found.receipts if item.capability == scope.route]
    same = [item for item in for_route if scope.differs(item) is None]
    if same:
        newest = same[-1]
        if newest.valid_until <= as_of:
            return f"its receipt expired at {newest.valid_until}"
        if newest.framing != scope.framing:
            return f"its receipt is for framing {newest.framing}, the study uses {scope.framing}"
        return f"its newest receipt says {newest.state} ({newest.reason})"
    if found.untrusted:
        return f"the receipt file {found.untrusted[0]} cannot be trusted"
    if for_route:
        return f"the stored receipt is for another {scope.differs(for_route[-1])}"
    return "there is no receipt"
