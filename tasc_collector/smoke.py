"""The manual smoke: one call to a real endpoint, or six contacts to the contract servers.

Rules (the seed's, word for word in effect):

1. Without a ``TASC_LIVE_SMOKE_*`` variable: six contacts on loopback (vLLM, Ollama NDJSON, TGI), no other endpoint.
2. With one, all nine required ones, and no unknown one; authentication variables together or not at all. Anything
   else is refused before contact, and so is real mode under ``CI`` or ``GITHUB_ACTIONS``.
3. Only a route whose pinned capability is ``supported``. A conditional one is refused with the command that obtains a
   receipt.
4. Plain http needs an exact loopback literal *and* ``TASC_LIVE_SMOKE_ALLOW_LOOPBACK=1``; the flag is refused elsewhere.
5. Exactly one request of eight output tokens under fixed limits; no probe, no discovery, no retry.
6. The result is the instance identity and the persisted invocation. Prompt, output, origin, reference, variable name
   and secret are checked to be absent before anything is returned. It is a success only where it completed.
"""

from __future__ import annotations

import json
import re
import secrets as randomness
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import ValidationError

from tasc_collector.canonical import canonical_bytes
from tasc_collector.contract_servers import Behaviour, ContractServer
from tasc_collector.contracts.base import input_error
from tasc_collector.contracts.http_limits import HttpLimits
from tasc_collector.contracts.instance import RuntimeInstance
from tasc_collector.contracts.trust_policy import CollectorTrustPolicy
from tasc_collector.errors import InputError, NotAuthorized, TascError
from tasc_collector.identity import PayloadKey
from tasc_collector.invocation.dispatch import InvocationOutcome, dispatch
from tasc_collector.invocation.prepare import Authentication, CallTarget, prepare
from tasc_collector.runtimes.profile import CapabilityState, Framing, Protocol, Route, RuntimeProfile
from tasc_collector.runtimes.registry import get_profile
from tasc_collector.runtimes.request import Generation, Message, Role
from tasc_collector.secrets import SecretStore
from tasc_collector.transport.clock import Clock
from tasc_collector.transport.network import NetworkAccess, SystemNetwork
from tasc_collector.transport.origins import HostKind, parse_origin

PREFIX: Final = "TASC_LIVE_SMOKE_"
REQUIRED: Final = (
    "ENDPOINT",
    "RUNTIME",
    "RUNTIME_BUILD",
    "ROUTE",
    "MODEL_ID",
    "MODEL_REVISION",
    "BACKEND_NAME",
    "BACKEND_BUILD",
    "CONFIGURATION_DIGEST",
)
OPTIONAL: Final = ("ALLOW_LOOPBACK", "AUTH_ENV", "AUTH_HEADER")
LIMITS: Final = HttpLimits(
    max_request_bytes=65_536,
    max_response_header_bytes=16_384,
    max_response_headers=64,
    max_response_bytes=1_048_576,
    max_response_chunks=4_096,
    max_secret_header_bytes=8_192,
    connect_timeout_ms=3_000,
    headers_timeout_ms=5_000,
    body_timeout_ms=5_000,
    deadline_ms=10_000,
)
OUTPUT_TOKENS: Final = 8
PROMPT: Final = "Complete this sentence in a few plain words: the smallest prime number is"
_ALIAS: Final = "live-smoke"
_REFERENCE: Final = "live-smoke-auth"
_AUTH_ENV = re.compile(r"TASC_RUNTIME_AUTH_[A-Z][A-Z0-9_]{0,63}")
_CHAT = frozenset({Protocol.OPENAI_CHAT, Protocol.OLLAMA_CHAT, Protocol.LM_STUDIO_CHAT, Protocol.OPENAI_RESPONSES})
_DOCS = "see `tasc smoke --help` for the variables"


@dataclass(frozen=True, slots=True)
class SmokeTarget:
    """What one smoke call needs; checked, and nothing opened."""

    call: CallTarget = field(repr=False)
    secret_names: tuple[str, ...] = field(repr=False)
    """Names that must not be in the output: the environment variable and the reference."""


@dataclass(frozen=True, slots=True)
class SmokeRecord:
    """What may be printed of one call.

    Args:
        instance: the operator-declared identity.
        persistence: the persisted invocation.
        completed: whether it is a success.
    """

    instance: Mapping[str, Any]  # Any: a JSON object
    persistence: Mapping[str, Any]  # Any: a JSON object
    completed: bool

    def line(self) -> str:
        """One line of canonical JSON."""
        return canonical_bytes({"instance": dict(self.instance), "persistence": dict(self.persistence)}).decode("utf-8")


def read_target(environ: Mapping[str, str]) -> SmokeTarget | None:
    """Read the real mode's variables; None where there is none of them.

    Raises:
        InputError: the set is partial, unknown, malformed, or this is a CI run. Nothing was contacted.
    """
    given = {name.removeprefix(PREFIX): value for name, value in environ.items() if name.startswith(PREFIX)}
    if not given:
        return None
    if environ.get("CI") or environ.get("GITHUB_ACTIONS"):
        raise _refused(
            "real mode is for an operator's hands, not for CI", "unset the TASC_LIVE_SMOKE_* variables in CI"
        )
    if set(given) - {*REQUIRED, *OPTIONAL}:
        raise _refused("an unknown TASC_LIVE_SMOKE_* variable is set", f"correct its spelling or unset it; {_DOCS}")
    if not set(REQUIRED) <= set(given):
        missing = ", ".join(name for name in REQUIRED if name not in given)
        raise _refused(f"the contract is partial; missing: {missing}", f"set every required variable; {_DOCS}")
    if ("AUTH_ENV" in given) != ("AUTH_HEADER" in given):
        raise _refused("AUTH_ENV and AUTH_HEADER are given together or not at all", "set both or unset both")
    origin = parse_origin(given["ENDPOINT"], where="ENDPOINT")
    if (origin.kind is HostKind.LOOPBACK) != (given.get("ALLOW_LOOPBACK") == "1") or given.get(
        "ALLOW_LOOPBACK", "1"
    ) != "1":
        raise _refused(
            "plain http to a loopback literal and ALLOW_LOOPBACK=1 go together, and only together",
            "set ALLOW_LOOPBACK=1 for http://127.0.0.1:<port>, unset it for a public endpoint",
        )
    profile = get_profile(given["RUNTIME"], given["RUNTIME_BUILD"])
    return _target(given, profile, _route(given["ROUTE"], profile), _authentication(given))


async def run_real(
    target: SmokeTarget, environ: Mapping[str, str], *, clock: Clock, network: NetworkAccess | None = None
) -> SmokeRecord:
    """Make the one call of real mode.

    Args:
        target: what ``read_target`` checked.
        environ: environment in which the secret is looked up, at dispatch.
        clock: both clocks.
        network: lookups and sockets; the system's if None.

    Raises:
        InputError: the call is not allowed; nothing was sent.
        TascError: the result holds something that may not be shown; nothing is printed.
    """
    outcome = await _call(target.call, environ, clock, network)
    record = SmokeRecord(target.call.instance.to_json(), outcome.persistence.to_json(), outcome.completed)
    _check_clean(record.line(), target, outcome, environ)
    return record


@dataclass(frozen=True, slots=True)
class Contact:
    """One contact of the fixture mode: a runtime, a route, and the status it must come to."""

    runtime: str
    build: str
    route: Route
    framing: Framing
    expected: str


CONTACTS: Final = (
    Contact("vllm", "0.26.0", Route.COMPLETIONS, Framing.JSON, "completed"),
    Contact("vllm", "0.26.0", Route.COMPLETIONS, Framing.SSE, "completed"),
    Contact("ollama", "0.32.5", Route.NATIVE_CHAT, Framing.NDJSON, "completed"),
    Contact("ollama", "0.32.5", Route.NATIVE_GENERATE, Framing.NDJSON, "completed"),
    Contact("tgi", "3.3.7", Route.NATIVE_GENERATE, Framing.JSON, "incomplete"),
    Contact("tgi", "3.3.7", Route.NATIVE_GENERATE, Framing.SSE, "incomplete"),
)
"""The six contacts. TGI's native answer names no model, so it can only be incomplete, which is what must be seen."""


@dataclass(frozen=True, slots=True)
class ContactResult:
    """What one contact came to.

    Args:
        contact: which.
        status: the persisted status.
        requests: inference requests that the server itself counted.
    """

    contact: Contact
    status: str
    requests: int

    @property
    def good(self) -> bool:
        """True where status and count are as expected."""
        return self.status == self.contact.expected and self.requests == 1


async def run_contacts(*, clock: Clock) -> tuple[ContactResult, ...]:
    """Make the six contacts to contract servers on loopback; nothing leaves the machine.

    Args:
        clock: both clocks.
    """
    results = []
    for contact in CONTACTS:
        with ContractServer(contact.runtime, contact.build, behaviour=Behaviour(tokens=OUTPUT_TOKENS)) as server:
            given = {
                "ENDPOINT": server.origin,
                "RUNTIME": contact.runtime,
                "RUNTIME_BUILD": contact.build,
                "MODEL_ID": server.model,
                "MODEL_REVISION": "contract",
                "BACKEND_NAME": "contract-server",
                "BACKEND_BUILD": "1",
                "CONFIGURATION_DIGEST": "sha256:" + "0" * 64,
            }
            profile = get_profile(contact.runtime, contact.build)
            call = _target(given, profile, contact.route, None, framing=contact.framing).call
            outcome = await _call(call, {}, clock, None)
            results.append(ContactResult(contact, outcome.persistence.status, server.ledger.inference_calls))
    return tuple(results)


async def _call(
    call: CallTarget, environ: Mapping[str, str], clock: Clock, network: NetworkAccess | None
) -> InvocationOutcome:
    chat = call.profile.routes[call.route].protocol in _CHAT
    generation = Generation(
        model_id=call.instance.model.id,
        max_tokens=OUTPUT_TOKENS,
        stream=call.framing is not Framing.JSON,
        messages=(Message(Role.USER, PROMPT),) if chat else None,
        prompt=None if chat else PROMPT,
    )
    key = PayloadKey(_ALIAS, "ephemeral", randomness.token_bytes(32))
    prepared = prepare(call, generation, payload_key=key, secrets=SecretStore(environ), clock=clock)
    return await dispatch(prepared, lease=_no_lease, network=network or SystemNetwork(), keep_text=True)


async def _no_lease() -> None:
    """A smoke call belongs to no window and is never repeated."""


def _target(
    given: Mapping[str, str],
    profile: RuntimeProfile,
    route: Route,
    authentication: Authentication | None,
    *,
    framing: Framing | None = None,
) -> SmokeTarget:
    framings = profile.routes[route].framings
    framing = framing or framings[-1]
    references = [] if authentication is None else [authentication.reference]
    policy = CollectorTrustPolicy.from_value(
        {
            "schemaVersion": "tasc-collector-trust-policy-v1",
            "localMode": "literal-loopback-only" if "http://" in given["ENDPOINT"] else "disabled",
            "maximumRequestDurationMs": LIMITS.deadline_ms,
            "endpoints": [
                {
                    "alias": _ALIAS,
                    "origin": given["ENDPOINT"],
                    "runtime": {"profileId": profile.runtime, "build": profile.build},
                    "routes": [
                        {
                            "method": "POST",
                            "pathPrefix": profile.routes[route].paths[framing],
                            "authenticationReferences": references,
                        }
                    ],
                }
            ],
            "secretReferences": references,
            "evaluatorKeyIds": [],
            "storeRoots": [],
        },
        where="live smoke",
    ).record
    binding = policy.endpoints[0].binding_digest(None)
    try:
        instance = RuntimeInstance.model_validate_json(
            json.dumps(
                {
                    "endpointDescriptorDigest": binding,
                    "runtime": {"profileId": profile.runtime, "build": profile.build},
                    "backend": {"name": given["BACKEND_NAME"], "build": given["BACKEND_BUILD"]},
                    "model": {"id": given["MODEL_ID"], "revision": given["MODEL_REVISION"]},
                    "configurationDigest": given["CONFIGURATION_DIGEST"],
                }
            )
        )
    except ValidationError as error:
        raise input_error(error, where="live smoke") from None
    call = CallTarget(policy, _ALIAS, instance, profile, route, framing, LIMITS, authentication)
    return SmokeTarget(call, () if authentication is None else (authentication.source.removeprefix("env:"), _REFERENCE))


def _route(name: str, profile: RuntimeProfile) -> Route:
    route = next((route for route in profile.routes if route.value == name), None)
    if route is None:
        known = ", ".join(entry.value for entry in profile.routes)
        raise _refused("this build has no such route", f"set ROUTE to one of: {known}")
    state = profile.state(route.capability)
    if state is not CapabilityState.SUPPORTED:
        raise NotAuthorized(
            f"route {route.value} is {state.value} at the pinned build",
            where="live smoke",
            field="ROUTE",
            rule="the smoke calls supported routes only and probes nothing",
            way_out=f"obtain a receipt: `tasc probe STUDY/ALIAS {route.value} --effect inference-canary`",
        )
    return route


def _authentication(given: Mapping[str, str]) -> Authentication | None:
    if "AUTH_ENV" not in given:
        return None
    if _AUTH_ENV.fullmatch(given["AUTH_ENV"]) is None:
        raise _refused(
            "AUTH_ENV names a TASC_RUNTIME_AUTH_* variable", "name the variable that the secret manager injects"
        )
    if given["AUTH_HEADER"] == "authorization":
        return Authentication(_REFERENCE, "authorization", "env:" + given["AUTH_ENV"])
    if given["AUTH_HEADER"] == "x-api-key":
        return Authentication(_REFERENCE, "x-api-key", "env:" + given["AUTH_ENV"])
    raise _refused("AUTH_HEADER is authorization or x-api-key", "set it to one of the two")


def _check_clean(line: str, target: SmokeTarget, outcome: InvocationOutcome, environ: Mapping[str, str]) -> None:
    """Refuse to show a record that holds what it must not (rule 6)."""
    origin = target.call.policy.endpoints[0].origin
    forbidden = [PROMPT, origin, origin.partition("://")[2], *target.secret_names]
    forbidden += [environ[name] for name in target.secret_names if environ.get(name)]
    text = outcome.answer.text if outcome.answer is not None else None
    if text is not None and len(text.strip()) > OUTPUT_TOKENS:
        forbidden.append(text.strip())
    if any(canonical_bytes(item).decode("utf-8")[1:-1] in line for item in forbidden):
        raise TascError(
            "the record would show what it must not; nothing is printed",
            where="live smoke",
            way_out="report this as a defect",
        )


def _refused(rule: str, way_out: str) -> InputError:
    return InputError("the live smoke is refused before any contact", where="live smoke", rule=rule, way_out=way_out)
