"""From a trust policy to one authorized request. Pure.

Rules (original project, section 5):

1. The alias exists; the runtime and build are the endpoint's own.
2. The path obeys the path grammar; the longest route prefix of the method that covers it, by whole segments, decides.
3. If that route lists authentication references exactly one of them is used; if it lists none, none may be.
4. The duration is at most the policy's.
5. A loopback origin needs local mode. A private network needs an operator's extension that is valid now.
6. An authorization covers one request shape, in this process. It cannot be built, copied or changed elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import NoReturn
from weakref import WeakSet

from tasc_collector.canonical import digest
from tasc_collector.contracts.network_extension import ExtendedEndpoint, NetworkExtension
from tasc_collector.contracts.scalars import timestamp_of_ms
from tasc_collector.contracts.trust_policy import CollectorTrustPolicy, TrustedEndpoint, TrustedRoute
from tasc_collector.errors import NotAuthorized
from tasc_collector.transport.addresses import Network
from tasc_collector.transport.origins import HostKind, Origin, parse_origin, request_path_ok, under_prefix

AUTHORIZATION_DOMAIN = "tasc/collector-request-authorization/v1"


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class AuthorizedRequest:
    """The authority to make one shape of request. Only ``authorize`` makes a valid one."""

    alias: str
    origin: Origin
    method: str
    path: str = field(repr=False)
    runtime: str
    build: str
    authentication_reference: str | None
    maximum_duration_ms: int
    private_networks: tuple[Network, ...] = field(repr=False)
    extension: ExtendedEndpoint | None = field(repr=False)
    route_prefix: str = field(repr=False)
    endpoint: TrustedEndpoint = field(repr=False)

    @property
    def digest(self) -> str:
        """Digest of what is authorized, for a record of it."""
        return digest(
            AUTHORIZATION_DOMAIN,
            {
                "endpointBindingDigest": self.endpoint.binding_digest(None),
                "method": self.method,
                "path": self.path,
                "routePrefix": self.route_prefix,
                "authenticationReference": self.authentication_reference,
                "durationMs": self.maximum_duration_ms,
            },
        )

    def __copy__(self) -> NoReturn:
        raise TypeError("an authorization cannot be copied")

    def __deepcopy__(self, memo: object) -> NoReturn:
        raise TypeError("an authorization cannot be copied")

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("an authorization cannot be pickled")


_ISSUED: WeakSet[AuthorizedRequest] = WeakSet()


def authorize(
    policy: CollectorTrustPolicy,
    *,
    alias: str,
    runtime: str,
    build: str,
    method: str,
    path: str,
    authentication_reference: str | None,
    duration_ms: int,
    extension: NetworkExtension | None = None,
    now_ms: int | None = None,
) -> AuthorizedRequest:
    """Authorize one request shape by rules 1 to 5.

    Args:
        policy: the operator's trust policy.
        alias: endpoint alias.
        runtime: runtime profile id that the caller believes to speak to.
        build: its build.
        method: ``GET`` or ``POST``.
        path: request path, without query.
        authentication_reference: name of the secret reference, or None.
        duration_ms: total deadline that is asked for.
        extension: the operator's network extension, if the study has one.
        now_ms: milliseconds since 1970, to check the extension's validity; required with an extension.

    Raises:
        NotAuthorized: a rule does not allow it; names the field. Nothing was sent.
        InputError: the endpoint's origin is not one that may be reached.
    """
    endpoint = policy.endpoint(alias)
    if endpoint is None:
        raise _refused(
            "alias",
            "the trust policy has no such endpoint",
            "use an alias of the trust policy, or add the endpoint to it",
        )
    if (endpoint.runtime.profile_id, endpoint.runtime.build) != (runtime, build):
        raise _refused(
            "runtime",
            "the endpoint is trusted as another runtime or build",
            "issue the policy for this build, or select its build",
        )
    if not 1 <= duration_ms <= policy.maximum_request_duration_ms:
        raise _refused(
            "deadlineMs",
            f"1 to {policy.maximum_request_duration_ms} ms in this policy",
            "lower the deadline, or raise the policy's",
        )
    route = _route(endpoint, method, path)
    _check_reference(route, authentication_reference)
    opened = _opened(extension, alias, now_ms)
    networks = _networks(opened)
    origin = parse_origin(endpoint.origin, where=f"endpoint {alias}", private_networks=networks)
    if origin.kind is HostKind.LOOPBACK and policy.local_mode != "literal-loopback-only":
        raise _refused(
            "localMode",
            "plain http to loopback needs localMode literal-loopback-only",
            "set localMode in the trust policy",
        )
    request = AuthorizedRequest(
        alias,
        origin,
        method,
        path,
        runtime,
        build,
        authentication_reference,
        duration_ms,
        networks,
        opened,
        route.path_prefix,
        endpoint,
    )
    _ISSUED.add(request)
    return request


def require_issued(request: AuthorizedRequest) -> None:
    """Refuse an authorization that ``authorize`` of this process did not make (rule 6).

    Raises:
        NotAuthorized: it was built, changed or copied elsewhere.
    """
    if request not in _ISSUED:
        raise _refused("authorized", "this authorization was not issued here", "authorize the request again")


def covering_route(endpoint: TrustedEndpoint, method: str, path: str) -> TrustedRoute | None:
    """The route of an endpoint that decides for a method and path (rule 2), or None."""
    routes = [route for route in endpoint.routes if route.method == method and under_prefix(path, route.path_prefix)]
    return max(routes, key=lambda route: len(route.path_prefix), default=None)


def require_narrower(parent: CollectorTrustPolicy, child: CollectorTrustPolicy) -> None:
    """Check that a policy allows nothing that its parent does not.

    Raises:
        NotAuthorized: it loosens something; names the first such field.
    """
    if child.local_mode != "disabled" and child.local_mode != parent.local_mode:
        raise _looser("localMode", "local mode cannot be widened")
    if child.maximum_request_duration_ms > parent.maximum_request_duration_ms:
        raise _looser("maximumRequestDurationMs", "the duration cannot grow")
    lists = (
        ("secretReferences", parent.secret_references, child.secret_references),
        ("evaluatorKeyIds", parent.evaluator_key_ids, child.evaluator_key_ids),
        ("storeRoots", parent.store_roots, child.store_roots),
    )
    for name, old, new in lists:
        if not set(new) <= set(old):
            raise _looser(name, "the list cannot gain an entry")
    for index, endpoint in enumerate(child.endpoints):
        known = parent.endpoint(endpoint.alias)
        at = f"endpoints.{index}"
        if known is None or known.origin != endpoint.origin or known.runtime != endpoint.runtime:
            raise _looser(at, "an endpoint cannot be added, moved or given another runtime")
        for number, route in enumerate(endpoint.routes):
            above = covering_route(known, route.method, route.path_prefix)
            if above is None:
                raise _looser(f"{at}.routes.{number}", "a route must lie inside a route of the parent")
            _keep_authentication(above, route, f"{at}.routes.{number}")
        for above in known.routes:
            # a path below the parent's route may be decided by a shorter route of the child
            route_of_child = covering_route(endpoint, above.method, above.path_prefix)
            if route_of_child is not None:
                _keep_authentication(above, route_of_child, f"{at}.routes.{endpoint.routes.index(route_of_child)}")


def _keep_authentication(above: TrustedRoute, route: TrustedRoute, at: str) -> None:
    """A child's route that decides where ``above`` did uses one of its references, or none where it had none."""
    old, new = set(above.authentication_references), set(route.authentication_references)
    if not new <= old or (old and not new):
        raise _looser(f"{at}.authenticationReferences", "authentication cannot be dropped or changed")


def _route(endpoint: TrustedEndpoint, method: str, path: str) -> TrustedRoute:
    if not request_path_ok(path):
        raise _refused("path", "a path is segments of letters, digits and ._~- without query", "correct the path")
    route = covering_route(endpoint, method, path)
    if route is None:
        raise _refused(
            "path", "no route of the endpoint covers this method and path", "add a route to the trust policy"
        )
    return route


def _check_reference(route: TrustedRoute, reference: str | None) -> None:
    allowed = route.authentication_references
    if allowed and reference not in allowed:
        raise _refused(
            "authenticationReference",
            "the route requires one of its own references",
            "give one of the route's references",
        )
    if not allowed and reference is not None:
        raise _refused(
            "authenticationReference",
            "the route allows none",
            "leave it out, or list it at the route in the trust policy",
        )


def _opened(extension: NetworkExtension | None, alias: str, now_ms: int | None) -> ExtendedEndpoint | None:
    opened = extension.endpoint(alias) if extension is not None else None
    if extension is None or opened is None:
        return None
    if now_ms is None or not extension.issued_at <= timestamp_of_ms(now_ms) < extension.expires_at:
        raise _refused("networkExtension", "the extension is not valid now", "let the operator issue a new one")
    return opened


def _networks(opened: ExtendedEndpoint | None) -> tuple[Network, ...]:
    if opened is None or opened.private_networks is None:
        return ()
    return tuple(ip_network(cidr) for cidr in opened.private_networks.cidrs)


def _refused(field_name: str, rule: str, way_out: str) -> NotAuthorized:
    return NotAuthorized("the request is not authorized", field=field_name, rule=rule, way_out=way_out)


def _looser(field_name: str, rule: str) -> NotAuthorized:
    return NotAuthorized(
        "the policy loosens its parent", field=field_name, rule=rule, way_out="narrow it, or change the parent"
    )
