"""Canaries in prompts, answers, headers and secrets are in no repr, message, exception, log, file or journal, whatever the
server does: every scenario of the failure matrix and every kind of bad answer, plain and TLS, at debug level.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from tasc_collector.canonical import canonical_bytes
from tasc_collector.contracts.http_limits import HttpLimits
from tasc_collector.contracts.work_budget import WorkBudget
from tasc_collector.errors import InputError, TascError
from tasc_collector.invocation.dispatch import InvocationCancelled, dispatch
from tasc_collector.invocation.prepare import Authentication, prepare
from tasc_collector.journal import RecordKind
from tasc_collector.runtimes.profile import Framing
from tasc_collector.secrets import SecretStore
from tasc_collector.shadow.cases import read_cases
from tasc_collector.transport.clock import SystemClock
from tasc_collector.transport.face import FaceTarget, OneShotTransport
from tasc_collector.transport.network import NetworkAccess, SystemNetwork
from tests.support import chains
from tests.support.calls import LabNetwork
from tests.support.canaries import everything_in, everything_of, found_in
from tests.support.extensions import extension_for
from tests.support.failure_scenarios import Scenario, SmallBuffers, SmallLab, idle, nobody_accepts, scenarios
from tests.support.raw_server import Peer, RawServer, Script
from tests.support.run_contexts import Setup, run_context
from tests.support.runs import records, run
from tests.support.targets import KEY, generation_for, target_for

PROMPT, OUTPUT, SECRET, HEADER = "canary-Prompt-71f3", "canary-Output-a90c", "canary-Secret-5d2e", "canary-Header-88b1"
NAME = "TASC_RUNTIME_AUTH_CANARYNAME"
EVENT = (
    b'data: {"id":"c","object":"text_completion","created":1,"model":"org/model","choices":[{"index":0,"text":"'
    + OUTPUT.encode()
    + b'","finish_reason":%b}]}\n\n'
)
HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Echo: " + HEADER.encode() + b"\r\nX-Request-Id: r-1\r\n"
)


def chunked(*events: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in events)


def after(*parts: bytes, reset: bool = False) -> Script:
    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(*parts)
        if reset:
            peer.rst()

    return script


STREAM = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
SCRIPTS: dict[str, Script] = {
    "finished": after(STREAM + chunked(EVENT % b"null", EVENT % b'"stop"', b"data: [DONE]\n\n") + b"0\r\n\r\n"),
    "cut": after(STREAM + chunked(EVENT % b"null")),
    "reset": after(STREAM + chunked(EVENT % b"null"), reset=True),
    "not json": after(STREAM + chunked(b"data: {" + OUTPUT.encode() + b"\n\n") + b"0\r\n\r\n"),
    "not utf-8": after(STREAM + chunked(b"data: \xff" + OUTPUT.encode() + b"\n\n") + b"0\r\n\r\n"),
    "error frame": after(
        STREAM + chunked(b'data: {"error":{"message":"' + OUTPUT.encode() + b'"}}\n\n') + b"0\r\n\r\n"
    ),
    "another model": after(STREAM + chunked((EVENT % b"null").replace(b"org/model", OUTPUT.encode())) + b"0\r\n\r\n"),
    "unknown finish reason": after(STREAM + chunked(EVENT % (b'"' + OUTPUT.encode() + b'"')) + b"0\r\n\r\n"),
    "bad chunk": after(STREAM + OUTPUT.encode() + b"\r\n"),
    "bad header": after(b"HTTP/1.1 200 OK\r\n" + HEADER.encode() + b"\r\n\r\n"),
    "bad status line": after(OUTPUT.encode() + b"\r\n\r\n"),
    "refusal": after(
        b"HTTP/1.1 401 No\r\nContent-Length: %d\r\nWww-Authenticate: %b\r\n\r\n%b"
        % (len(OUTPUT), HEADER.encode(), OUTPUT.encode())
    ),
    "redirect": after(
        b"HTTP/1.1 302 F\r\nContent-Length: 0\r\nLocation: https://%b.example.com/\r\n\r\n" % HEADER.encode()
    ),
    "reflected secret": after(HEAD + b"X-Auth: Bearer " + SECRET.encode() + b"\r\nContent-Length: 1\r\n\r\nx"),
    "secret as request id": after(
        b"HTTP/1.1 500 E\r\nContent-Length: 0\r\nX-Request-Id: sk-%b\r\n\r\n" % SECRET.encode()
    ),
    "nothing": after(),
}


BODY = json.dumps(
    {
        "id": "c",
        "object": "text_completion",
        "created": 1,
        "model": "org/model",
        "choices": [{"index": 0, "text": OUTPUT, "logprobs": None, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7},
    }
).encode()
MATRIX = scenarios(BODY, b"X-Echo: " + HEADER.encode() + b"\r\nX-Auth: Bearer " + SECRET.encode() + b"\r\n")
SECURE = pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
PRIVATE = "10.77.88.99"
"""Where the TLS endpoint's name leads, in a network that the operator's extension opens."""


@dataclass
class Place:
    """An endpoint of a test, and everything that is shown on the way to it.

    Args:
        folder: of this test; the server's files lie in it, and what the collector writes in ``run``.
        port: of the server.
        secure: TLS, to a name whose private address leads to the port.
        framing: of its answers.
        limits: bounds of a call.
        deadline_ms: of a call.
        network: another network than the usual one.
    """

    folder: Path
    port: int
    secure: bool
    framing: Framing = Framing.JSON
    limits: HttpLimits = field(default_factory=HttpLimits)
    deadline_ms: int = 5_000
    small: bool = False
    answers: Sequence[Sequence[str]] = ((PRIVATE,),)
    shown: list[str] = field(default_factory=list)

    @property
    def origin(self) -> str:
        return f"https://{chains.HOST}" if self.secure else f"http://127.0.0.1:{self.port}"

    @property
    def hidden(self) -> list[str]:
        """What must be found nowhere."""
        place = [chains.HOST, PRIVATE] if self.secure else [f"127.0.0.1:{self.port}"]
        return [PROMPT, OUTPUT, SECRET, HEADER, NAME, *place]

    def network(self) -> NetworkAccess:
        if self.secure:
            return (SmallLab if self.small else LabNetwork)(self.port, self.answers)
        return SmallBuffers() if self.small else SystemNetwork()

    def changes(self) -> dict[str, Any]:
        """How a call target differs: it authenticates with the canary secret."""
        ca = self.folder / "ca.pem"
        ca.write_text(chains.root().pem)
        routes = [
            {"method": method, "pathPrefix": "/", "authenticationReferences": ["main-key"]}
            for method in ("GET", "POST")
        ]
        return {
            "framing": self.framing,
            "policy_changes": {"endpoint": {"routes": routes}, "secretReferences": ["main-key"]},
            "authentication": Authentication("main-key", "authorization", f"env:{NAME}"),
            "extension": extension_for(cidrs=["10.0.0.0/8"], ca=ca) if self.secure else None,
        }


SECRETS = SecretStore({NAME: f"Bearer {SECRET}"})
DEADLINES = {"30 body drips": 300}
"""Where only the total deadline ends a call."""
LONG = PROMPT + "\u00e9" * 500_000


async def one_call(place: Place, prompt: str, *, cancelled_after_s: float | None = None) -> None:
    """Prepare and dispatch, and show all that comes of it."""
    target = target_for(place.origin, limits=place.limits, **place.changes())
    deadline_ms = min(place.deadline_ms, place.limits.deadline_ms)
    prepared = prepare(
        target,
        generation_for(target, prompt=prompt),
        payload_key=KEY,
        secrets=SECRETS,
        clock=SystemClock(),
        deadline_ms=deadline_ms,
    )
    place.shown += [repr(prepared), repr(target)]
    call = dispatch(prepared, lease=no_lease, network=place.network())
    task = asyncio.create_task(call)
    if cancelled_after_s is not None:
        asyncio.get_running_loop().call_later(cancelled_after_s, task.cancel)
    try:
        outcome = await task
    except InvocationCancelled as error:
        place.shown.append(everything_of(error))
        outcome = error.outcome
    place.shown += [repr(outcome), repr(outcome.exchange), repr(outcome.answer)]
    place.shown += [outcome.persistence.canonical().decode(), canonical_bytes(outcome.timeline.draft()).decode()]


async def one_read(place: Place, prompt: str = PROMPT) -> None:
    """The same endpoint through httpx, whose own request and response the caller holds: only what is raised counts."""
    target = target_for(place.origin, **place.changes())
    profile, secret = target.profile, ("main-key", "authorization", f"Bearer {SECRET}".encode())
    limits = place.limits.model_copy(update={"deadline_ms": min(place.deadline_ms, place.limits.deadline_ms)})
    transport = OneShotTransport(
        FaceTarget(target.policy, "main", profile.runtime, profile.build, limits, secret, target.extension),
        clock=SystemClock(),
        network=place.network(),
    )
    place.shown.append(repr(transport))
    async with httpx.AsyncClient(transport=transport, trust_env=False) as client:
        try:
            place.shown.append(repr(await client.post(f"{place.origin}/v1/completions", content=prompt)))
        except TascError as error:
            place.shown.append(everything_of(error))
    place.shown.append(repr(transport.last))


def one_window(place: Place, prompt: str) -> None:
    """A whole window with files and a journal."""
    changes = place.changes()
    plan: dict[str, Any] = {
        "attempt_timeout_ms": place.deadline_ms,
        "maximum_attempts": 1,
        "budget": WorkBudget(**dict.fromkeys(WorkBudget.model_fields, 10**12)),
    }
    if changes["extension"] is not None:
        plan["network_extension_digest"] = changes["extension"].digest
    setup = Setup({"a": place.origin, "b": place.origin}, [prompt], plan, targets={"a": changes, "b": changes})
    setup = replace(setup, limits=place.limits)
    context = run_context(setup, place.folder / "run", network=place.network(), secrets=SECRETS)
    place.shown.append(repr(context))
    result = run(context)
    assert (result.status, result.planned) == ("complete", 2), "no answer leaves a window stuck"
    assert len(records(context, RecordKind.OUTCOME)) == 2
    place.shown += [repr(result), everything_in([place.folder / "run"])]


@contextlib.contextmanager
def searched(caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str], place: Place) -> Iterator[None]:
    """Search all that was shown, logged and printed within."""
    caplog.set_level(logging.DEBUG)
    yield
    captured = capsys.readouterr()
    text = "\n".join((*place.shown, caplog.text, captured.out, captured.err))
    assert found_in(text, place.hidden) == []


def debugged(call: Any) -> None:
    """Run on a loop in debug mode, which logs slow steps with what they were called with."""
    with asyncio.Runner(debug=True) as runner:
        runner.get_loop().slow_callback_duration = 0.0
        runner.run(call)


def server_for(script: Script, folder: Path, *, secure: bool) -> RawServer:
    return RawServer(script, tls=chains.good().server_context(folder) if secure else None)


@SECURE
@pytest.mark.parametrize("name", MATRIX)
def test_nothing_of_a_call_is_shown_in_any_scenario(
    name: str, secure: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario: Scenario = MATRIX[name]
    prompt = LONG if scenario.big else PROMPT
    limits = scenario.limits.model_copy(update={"max_request_bytes": 2_000_000})
    with server_for(scenario.script, tmp_path, secure=secure) as server:
        place = Place(
            tmp_path,
            server.port,
            secure,
            limits=limits,
            deadline_ms=min(scenario.deadline_ms, 5_000),
            small=scenario.big,
        )
        with searched(caplog, capsys, place):
            debugged(one_call(place, prompt))
            debugged(one_read(place, prompt))
            one_window(place, prompt)


@SECURE
@pytest.mark.parametrize("name", SCRIPTS)
def test_nothing_of_a_bad_answer_is_shown(
    name: str, secure: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with server_for(SCRIPTS[name], tmp_path, secure=secure) as server:
        place = Place(tmp_path, server.port, secure, Framing.SSE)
        with searched(caplog, capsys, place):
            debugged(one_call(place, PROMPT))
            debugged(one_read(place))
            one_window(place, PROMPT)


@pytest.mark.parametrize(
    "name", ["1 no such name", "2 a refused address", "2 one refused among many", "3 refused", "3 refused by tls port"]
)
def test_nothing_of_a_call_that_finds_no_server_is_shown(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with RawServer(idle) as server:
        closed = server.port
    answers = {"1 no such name": [[]], "2 a refused address": [["127.0.0.1"]]}
    place = Place(
        tmp_path,
        closed,
        name != "3 refused",
        answers=answers.get(name, [[PRIVATE, "169.254.1.1"] if "among" in name else [PRIVATE]]),
    )
    with searched(caplog, capsys, place):
        debugged(one_call(place, PROMPT))
        debugged(one_read(place))
        one_window(place, PROMPT)


@SECURE
def test_nothing_of_a_call_that_nobody_accepts_is_shown(
    secure: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with nobody_accepts() as port:
        place = Place(tmp_path, port, secure, limits=HttpLimits(connect_timeout_ms=100))
        with searched(caplog, capsys, place):
            debugged(one_call(place, PROMPT))
            debugged(one_read(place))
            one_window(place, PROMPT)


HANDSHAKES: dict[str, Script] = {
    "6 plain http": lambda peer: peer.send(b"HTTP/1.1 400 %b\r\n\r\n" % HEADER.encode()),
    "7 reset": Peer.rst,
    "7 closed": Peer.fin,
    "8 stalled": Peer.hold,
}


@pytest.mark.parametrize("name", [*HANDSHAKES, "5 wrong host", "5 expired", "5 unknown ca", "5 address for a name"])
def test_nothing_of_a_call_whose_handshake_fails_is_shown(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    script, tls = HANDSHAKES.get(name, idle), None
    if name not in HANDSHAKES:
        tls = chains.CASES[name.removeprefix("5 ")][2]().server_context(tmp_path)
    with RawServer(script, tls=tls) as server:
        place = Place(tmp_path, server.port, secure=True, limits=HttpLimits(connect_timeout_ms=200))
        with searched(caplog, capsys, place):
            debugged(one_call(place, PROMPT))
            debugged(one_read(place))
            one_window(place, PROMPT)


@SECURE
@pytest.mark.parametrize("name", ["17 no head in time", "30 body drips"])
def test_32_nothing_of_a_cancelled_call_is_shown(
    name: str, secure: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with server_for(MATRIX[name].script, tmp_path, secure=secure) as server:
        place = Place(tmp_path, server.port, secure)
        with searched(caplog, capsys, place):
            debugged(one_call(place, PROMPT, cancelled_after_s=0.1))
            assert any("caller-cancelled" in text for text in place.shown)


@SECURE
def test_31_nothing_of_a_secret_that_is_no_header_is_shown(
    secure: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    place = Place(tmp_path, 9, secure)
    target = target_for(place.origin, **place.changes())
    with searched(caplog, capsys, place):
        for value in (f"{SECRET}\r\nx: y", f"{SECRET}\x00", f"{SECRET}\u00e9\udcff", f"{SECRET}\ud800", SECRET * 1_000):
            prepared = prepare(
                target,
                generation_for(target, prompt=PROMPT),
                payload_key=KEY,
                secrets=SecretStore({NAME: value}),
                clock=SystemClock(),
            )
            outcome = asyncio.run(dispatch(prepared, lease=no_lease, network=place.network()))
            assert outcome.persistence.dispatch_state.value == "not_sent"
            place.shown += [repr(outcome), repr(outcome.exchange), outcome.persistence.canonical().decode()]


@pytest.mark.parametrize(
    ("line", "format_"),
    [
        (PROMPT.encode() + b"\xff", "text-lines"),
        (b'{"messages":[{"role":"user","content":"' + PROMPT.encode() + b'"}', "openai-messages"),
        (b'{"messages":[{"role":"' + PROMPT.encode() + b'","content":"x"}]}', "openai-messages"),
        (b'{"generation":{"prompt":"' + PROMPT.encode() + b'","stop":7}}', "tasc"),
        (b'{"generation":{"prompt":"x"},"caseId":"' + PROMPT.encode() + b' "}', "tasc"),
    ],
)
def test_a_bad_case_is_in_no_part_of_the_error(line: bytes, format_: Any) -> None:
    with pytest.raises(InputError) as refusal:
        read_cases([line], format_, where="cases", replicates=1)
    assert found_in(everything_of(refusal.value), [PROMPT]) == []


@pytest.mark.parametrize("value", [f"{SECRET}\n", f"{SECRET}\x00", f" {SECRET}", f"{SECRET}\u00e9"])
def test_an_unusable_secret_is_in_no_message_and_no_traceback(value: str) -> None:
    try:
        SecretStore({NAME: value}).resolve(f"env:{NAME}")
    except TascError as error:
        text = everything_of(error)
    else:
        pytest.fail("the secret was taken")
    assert found_in(text, [SECRET, NAME]) == []


def test_a_refused_prompt_is_in_no_message_and_no_traceback() -> None:
    target = target_for("http://127.0.0.1:9")
    try:
        prepare(
            target,
            generation_for(target, prompt=PROMPT, model_id="another"),
            payload_key=KEY,
            secrets=SecretStore({}),
            clock=SystemClock(),
        )
    except InputError as error:
        text = everything_of(error)
    else:
        pytest.fail("the generation was taken")
    assert found_in(text, [PROMPT, "127.0.0.1:9"]) == []


async def no_lease() -> None:
    return
