"""What admits a route whose pinned capability is not plainly supported. Pure.

Rules:

1. A ``supported`` route needs nothing and must be given nothing.
2. A ``conditional`` or ``unknown`` route needs exactly one admission: by a signed capability receipt that somebody
   verified (``CapabilityAdmission``), or, for the one call that makes such a receipt, by an operator who named the
   effect (``CanaryAdmission``).
3. An ``unsupported`` route is never admitted.
4. A receipt admits exactly its endpoint, build, backend, model, configuration, route and framing, and must outlive
   the call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tasc_collector.contracts.instance import RuntimeInstance
from tasc_collector.errors import NotAuthorized
from tasc_collector.runtimes.profile import CapabilityState, Framing, Route, RuntimeProfile


@dataclass(frozen=True, slots=True)
class CapabilityAdmission:
    """A verified receipt, reduced to what it admits.

    Args:
        instance: endpoint binding, runtime, backend, model and configuration that the receipt names.
        route: its route.
        framing: its framing.
        valid_until_ms: milliseconds since 1970 at which it ends.
        receipt_digests: digests of the receipts behind it.
    """

    instance: RuntimeInstance
    route: Route
    framing: Framing
    valid_until_ms: int
    receipt_digests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CanaryAdmission:
    """An operator's word for one inference canary, by which a receipt is made; never for a window.

    Args:
        instance: the instance it may be sent to.
        route: the route it may use.
        framing: its framing.
        authorized_by: name of the authorization, for the record.
    """

    instance: RuntimeInstance
    route: Route
    framing: Framing
    authorized_by: str


Admission: TypeAlias = CapabilityAdmission | CanaryAdmission

_PROBE = "obtain a receipt: `tasc probe {alias} {route} --effect inference-canary`"


def admit(
    profile: RuntimeProfile,
    instance: RuntimeInstance,
    route: Route,
    framing: Framing,
    admission: Admission | None,
    *,
    alias: str,
) -> None:
    """Check that a route may be called by rules 1 to 4, all but the time.

    Raises:
        NotAuthorized: it may not; the way out names the command that obtains a receipt.
    """
    way_out = _PROBE.format(alias=alias, route=route.value)
    if route not in profile.routes or framing not in profile.routes[route].paths:
        raise _refused("route", "this build has no such route and framing", "choose one of `tasc runtimes`")
    state = profile.state(route.capability)
    if state is CapabilityState.UNSUPPORTED:
        raise _refused("route", "the pinned build does not support this route", "choose another route")
    if state is CapabilityState.SUPPORTED:
        if admission is not None:
            raise _refused("admission", "a supported route needs no receipt and takes none", "leave the admission out")
        return
    if admission is None:
        raise _refused("route", f"this route is {state.value} at the pinned build and has no receipt", way_out)
    if admission.instance != instance or (admission.route, admission.framing) != (route, framing):
        raise _refused(
            "admission",
            "the receipt is for another endpoint, build, backend, model, configuration, route or framing",
            way_out,
        )


def require_live(admission: Admission | None, *, until_ms: int, alias: str, route: Route) -> None:
    """Check that an admission outlives a call.

    Args:
        admission: what admits the route.
        until_ms: milliseconds since 1970 at which the call is over at the latest.
        alias: endpoint alias, for the message.
        route: the route, for the message.

    Raises:
        NotAuthorized: the receipt ends before.
    """
    if isinstance(admission, CapabilityAdmission) and admission.valid_until_ms < until_ms:
        raise _refused(
            "admission", "the receipt ends before the call would", _PROBE.format(alias=alias, route=route.value)
        )


def _refused(field: str, rule: str, way_out: str) -> NotAuthorized:
    return NotAuthorized("the call is not admitted", field=field, rule=rule, way_out=way_out)
