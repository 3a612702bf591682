"""A read of one observation route over TLS, with and without a secret: what may leave, and how each failure is told."""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import replace
from pathlib import Path

import pytest

from tasc_collector.errors import DispatchState
from tasc_collector.invocation.prepare import Authentication
from tasc_collector.probes.judgement import Finding
from tasc_collector.probes.observations import Subject, observe
from tasc_collector.probes.reading import ReadTarget
from tasc_collector.runtimes.profile import Effect, ObservationKind
from tasc_collector.secrets import SecretStore
from tasc_collector.transport.clock import SystemClock
from tests.support import chains
from tests.support.calls import NAME, PUBLIC, LabNetwork, policy_for
from tests.support.extensions import extension_for
from tests.support.probing import profile_of, subject
from tests.support.raw_server import Peer, RawServer, answer

SECRET = "sk-canary-5f1c9e"
VARIABLE = "TASC_RUNTIME_AUTH_CHAMPION"
MODELS = json.dumps({"object": "list", "data": [{"id": "m", "object": "model"}]}).encode()


class Instead:
    """A contract server's place in ``subject``: a runtime and the name that the lab's network knows."""

    runtime = "vllm"
    model = "m"
    origin = f"https://{NAME}"


PRIVATE = "10.20.0.5"


def authenticated(secrets: SecretStore, ca: Path | None = None) -> Subject:
    """A subject whose reads authenticate with ``authorization``; with ``ca`` it is in a private network under that CA."""
    profile = profile_of("vllm")
    path = next(item.path for item in profile.observations if item.kind is ObservationKind.MODELS)
    route = {"method": "GET", "pathPrefix": path, "authenticationReferences": ["main-key"]}
    policy = policy_for(Instead.origin, endpoint={"routes": [route]}, secretReferences=["main-key"])
    found = subject(Instead())  # type: ignore[arg-type]  # only these three attributes are read
    read = ReadTarget(
        policy,
        "main",
        profile.runtime,
        profile.build,
        None if ca is None else extension_for(cidrs=["10.20.0.0/16"], ca=ca),
        authentication=Authentication("main-key", "authorization", f"env:{VARIABLE}"),
        secrets=secrets,
    )
    return replace(found, read=read)


def models(found: Subject, server: RawServer, address: str = PUBLIC) -> Finding:
    network = LabNetwork(server.port, answers=((address,),))
    effect = Effect.NON_MUTATING
    return asyncio.run(observe(found, ObservationKind.MODELS, effect, clock=SystemClock(), network=network))


def play(peer: Peer) -> None:
    peer.read_request()
    peer.send(answer(MODELS))


@pytest.mark.parametrize(
    "case", ["expired", "wrong host", "unknown ca", "self-signed", "common name only", "missing intermediate"]
)
def test_a_server_whose_certificate_is_not_right_is_asked_nothing(case: str, tmp_path: Path) -> None:
    host, good, make = chains.CASES[case]
    assert (host, good) == (chains.HOST, False)
    with RawServer(play, tls=make().server_context(tmp_path)) as server:
        found = models(authenticated(SecretStore({VARIABLE: f"Bearer {SECRET}"})), server)
        assert (found.state, found.reason) == ("unknown", "tls-failed")
        assert found.dispatch_state is DispatchState.NOT_SENT
        assert server.requests == []
        assert SECRET not in repr(found)


def test_a_server_that_speaks_no_tls_is_told_apart_from_one_that_is_down() -> None:
    with RawServer(lambda peer: peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as server:
        found = models(authenticated(SecretStore({VARIABLE: f"Bearer {SECRET}"})), server)
        assert (found.state, found.reason) == ("unknown", "tls-failed")


def test_an_authenticated_read_sends_the_secret_once_and_shows_it_nowhere(tmp_path: Path) -> None:
    authority = tmp_path / "root.pem"
    authority.write_text(chains.root().pem)
    chain = chains.good(NAME)
    with RawServer(play, tls=chain.server_context(tmp_path)) as server:
        found = models(authenticated(SecretStore({VARIABLE: f"Bearer {SECRET}"}), authority), server, PRIVATE)
        assert (found.state, found.status) == ("supported", 200)
        (request,) = server.requests
        assert request.lower().count(b"\r\nauthorization: ") == 1
        assert f"Bearer {SECRET}".encode() in request
    shown = repr(found) + str(found)
    for form in (SECRET, base64.b64encode(SECRET.encode()).decode(), SECRET.encode().hex(), VARIABLE):
        assert form not in shown


@pytest.mark.parametrize(
    "value", [None, "", "Bearer x\n", "Bearer \x01"], ids=["absent", "empty", "newline", "control"]
)
def test_a_secret_that_is_not_there_or_not_sendable_stops_the_read_before_a_connection(value: str | None) -> None:
    secrets = SecretStore({} if value is None else {VARIABLE: value})
    with RawServer(play) as server:
        found = models(authenticated(secrets), server)
        assert (found.state, found.reason) == ("unknown", "authentication-unavailable")
        assert found.dispatch_state is DispatchState.NOT_SENT
        assert server.connections == 0
        assert VARIABLE not in repr(found)
