"""Preparing a call: everything is checked, nothing is opened, and the handle can be spent once.

Rules (original project, section 2.8):

1. ``prepare`` validates route, binding, bounds, policy, identity key, deadline and the form of the secret reference.
   It opens no file and no socket and reads no secret.
2. A ``PreparedInvocation`` describes the call without payload. Its authority lies in this process only, under the
   handle's own identity: a copy, a pickle or an equal object has none.
3. The authority is taken out by the first ``spend``, whatever comes of it, and ends with ``expires_at_ns``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NoReturn
from weakref import WeakKeyDictionary, WeakSet

from tasc_collector.contracts.http_limits import HttpLimits
from tasc_collector.contracts.identities import KeyedIdentity
from tasc_collector.contracts.instance import ModelRevision, RuntimeInstance
from tasc_collector.contracts.network_extension import NetworkExtension
from tasc_collector.contracts.trust_policy import CollectorTrustPolicy
from tasc_collector.errors import InputError, NotAuthorized
from tasc_collector.identity import PayloadKey
from tasc_collector.invocation.admission import Admission, admit
from tasc_collector.runtimes.profile import Framing, Locality, Route, RuntimeProfile
from tasc_collector.runtimes.request import BuiltRequest, Generation, build_request
from tasc_collector.secrets import SecretStore, check_reference
from tasc_collector.transport.clock import Clock
from tasc_collector.transport.origins import HostKind
from tasc_collector.transport.policy import AuthorizedRequest, authorize

_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Authentication:
    """How a call authenticates.

    Args:
        reference: the policy's name for it.
        header: the field that carries the secret.
        source: where the secret is found: ``env:NAME`` or ``keyfile:NAME``.
    """

    reference: str
    header: Literal["authorization", "x-api-key"]
    source: str = field(repr=False)


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class CallTarget:
    """Where a call goes and as what. Make it once and use it for every case of a profile.

    Args:
        policy: the operator's trust policy.
        alias: endpoint alias in it.
        instance: what the operator declares to run there.
        profile: the build's runtime profile.
        route: inference route.
        framing: framing of the answer.
        limits: bounds of the call.
        authentication: how it authenticates, or None.
        admission: what admits a route that is not plainly supported, or None.
        extension: the operator's network extension, or None.
        orchestration_descriptor_digest: digest of the endpoint's descriptor, where an orchestrator stands in front.
    """

    policy: CollectorTrustPolicy = field(repr=False)
    alias: str
    instance: RuntimeInstance
    profile: RuntimeProfile = field(repr=False)
    route: Route
    framing: Framing
    limits: HttpLimits
    authentication: Authentication | None = None
    admission: Admission | None = None
    extension: NetworkExtension | None = field(default=None, repr=False)
    orchestration_descriptor_digest: str | None = None


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class PreparedInvocation:
    """A call that may be dispatched once; it describes the call and holds no payload."""

    alias: str
    endpoint_binding_digest: str
    runtime: str
    build: str
    route: Route
    framing: Framing
    requested_model: ModelRevision
    request_identity: KeyedIdentity
    request_bytes: int
    deadline_ms: int
    expires_at_ns: int

    def __copy__(self) -> NoReturn:
        raise TypeError("a prepared invocation cannot be copied")

    def __deepcopy__(self, memo: object) -> NoReturn:
        raise TypeError("a prepared invocation cannot be copied")

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a prepared invocation cannot be pickled")


@dataclass(frozen=True, slots=True)
class Authority:
    """What ``spend`` hands to ``dispatch``; never shown, never stored."""

    target: CallTarget = field(repr=False)
    authorized: AuthorizedRequest = field(repr=False)
    built: BuiltRequest = field(repr=False)
    max_tokens: int
    payload_key: PayloadKey = field(repr=False)
    secrets: SecretStore = field(repr=False)
    clock: Clock = field(repr=False)


_CHECKED: WeakSet[CallTarget] = WeakSet()
"""Targets whose binding and admission were found good; they never change."""
_LIVE: WeakKeyDictionary[PreparedInvocation, Authority] = WeakKeyDictionary()


def prepare(
    target: CallTarget,
    generation: Generation,
    *,
    payload_key: PayloadKey,
    secrets: SecretStore,
    clock: Clock,
    deadline_ms: int | None = None,
    expires_in_ms: int | None = None,
) -> PreparedInvocation:
    """Check a call completely and make its one-shot handle.

    Args:
        target: where it goes.
        generation: what is asked.
        payload_key: key of the request's and answer's identities.
        secrets: where the secret will be looked up, at dispatch.
        clock: both clocks.
        deadline_ms: total deadline of the exchange, from dispatch on; the limits' own by default, never more.
        expires_in_ms: how long the handle may wait for its dispatch; as long as the deadline by default.

    Raises:
        NotAuthorized: policy, admission, binding or locality forbids it; names the field.
        InputError: the generation does not fit the route, or a bound is passed.
    """
    profile, instance, authentication = target.profile, target.instance, target.authentication
    deadline_ms = target.limits.deadline_ms if deadline_ms is None else deadline_ms
    if not 1 <= deadline_ms <= target.limits.deadline_ms:
        raise InputError(
            "the deadline is out of bounds",
            field="deadlineMs",
            rule=f"1 to {target.limits.deadline_ms} ms",
            way_out="lower the attempt's deadline, or raise deadlineMs in the study's limits",
        )
    if target not in _CHECKED:
        _check_binding(target)
        admit(profile, instance, target.route, target.framing, target.admission, alias=target.alias)
        if authentication is not None:
            check_reference(authentication.source, field_name="authentication.source")
        _CHECKED.add(target)
    built = build_request(profile, target.route, generation)
    if built.framing is not target.framing or generation.model_id != instance.model.id:
        raise InputError(
            "the generation is not the target's",
            field="framing" if built.framing is not target.framing else "modelId",
            rule="framing and model are those of the plan's target",
            way_out="build the generation from the target",
        )
    if len(built.body) > target.limits.max_request_bytes:
        raise InputError(
            "the request is too large",
            field="maxRequestBytes",
            rule=f"at most {target.limits.max_request_bytes} bytes",
            way_out="shorten the case, or raise the limit in the study",
        )
    authorized = authorize(
        target.policy,
        alias=target.alias,
        runtime=profile.runtime,
        build=profile.build,
        method=built.method,
        path=built.path,
        authentication_reference=None if authentication is None else authentication.reference,
        duration_ms=deadline_ms,
        extension=target.extension,
        now_ms=clock.wall_ns() // _MS,
    )
    if profile.locality is Locality.LOCAL_ONLY and authorized.origin.kind is not HostKind.LOOPBACK:
        raise NotAuthorized(
            "this runtime is local only",
            field="origin",
            rule="a local-only runtime is reached by literal loopback",
            way_out="collect on the server's own host",
        )
    wait_ms = deadline_ms if expires_in_ms is None else expires_in_ms
    prepared = PreparedInvocation(
        target.alias,
        instance.endpoint_descriptor_digest,
        profile.runtime,
        profile.build,
        target.route,
        target.framing,
        instance.model,
        payload_key.identify(built.body),
        len(built.body),
        deadline_ms,
        clock.now_ns() + wait_ms * _MS,
    )
    _LIVE[prepared] = Authority(target, authorized, built, generation.max_tokens, payload_key, secrets, clock)
    return prepared


def spend(prepared: PreparedInvocation) -> Authority:
    """Take the authority out of a handle; it is gone afterwards, also where this raises.

    Raises:
        NotAuthorized: the handle is a copy, was spent, or has expired.
    """
    authority = _LIVE.pop(prepared, None)
    if authority is None:
        raise NotAuthorized(
            "this invocation has no authority",
            field="prepared",
            rule="one handle, one dispatch, in the process that prepared it",
            way_out="prepare the call again",
        )
    if authority.clock.now_ns() >= prepared.expires_at_ns:
        raise NotAuthorized(
            "this invocation has expired",
            field="prepared",
            rule="a handle ends after its waiting time",
            way_out="prepare the call again when its turn comes",
        )
    return authority


def _check_binding(target: CallTarget) -> None:
    endpoint = target.policy.endpoint(target.alias)
    if endpoint is None:
        raise NotAuthorized(
            "the trust policy has no such endpoint",
            field="alias",
            way_out="use an alias of the trust policy, or add the endpoint to it",
        )
    if endpoint.binding_digest(target.orchestration_descriptor_digest) != target.instance.endpoint_descriptor_digest:
        raise NotAuthorized(
            "the endpoint is not the one that was bound",
            field="endpointBindingDigest",
            rule="origin, runtime, routes and descriptor are those of the plan",
            way_out="issue the plan again for the changed endpoint",
        )
    runtime = target.instance.runtime
    if (runtime.profile_id, runtime.build) != (target.profile.runtime, target.profile.build):
        raise NotAuthorized(
            "the instance runs another build than the profile describes",
            field="instance.runtime",
            way_out="select the profile of the instance's build",
        )
