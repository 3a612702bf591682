"""Canaries in prompts, answers, headers and secrets are in no repr, message, traceback or log, whatever the server
does.
"""

from __future__ import annotations

import asyncio
import logging
import traceback

import pytest

from tasc_collector.canonical import canonical_bytes
from tasc_collector.errors import InputError, TascError
from tasc_collector.invocation.dispatch import dispatch
from tasc_collector.invocation.prepare import Authentication, prepare
from tasc_collector.secrets import SecretStore
from tasc_collector.transport.clock import SystemClock
from tests.support.canaries import found_in
from tests.support.raw_server import Peer, RawServer, Script
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


@pytest.mark.parametrize("name", SCRIPTS)
def test_nothing_of_a_call_is_shown(
    name: str, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    shown: list[str] = []
    with RawServer(SCRIPTS[name]) as server:
        target = target_for(
            server.origin,
            policy_changes={
                "endpoint": {
                    "routes": [{"method": "POST", "pathPrefix": "/", "authenticationReferences": ["main-key"]}]
                },
                "secretReferences": ["main-key"],
            },
            authentication=Authentication("main-key", "authorization", f"env:{NAME}"),
        )
        secrets = SecretStore({NAME: f"Bearer {SECRET}"})

        async def go() -> None:
            asyncio.get_running_loop().set_debug(True)
            prepared = prepare(
                target, generation_for(target, prompt=PROMPT), payload_key=KEY, secrets=secrets, clock=SystemClock()
            )
            shown.extend((repr(prepared), repr(target)))
            outcome = await dispatch(prepared, lease=no_lease)
            shown.extend(
                (repr(outcome), repr(outcome.exchange), repr(outcome.answer), outcome.persistence.canonical().decode())
            )
            shown.append(canonical_bytes(outcome.timeline.draft()).decode())

        asyncio.run(go())
        origin = server.origin.removeprefix("http://")
    captured = capsys.readouterr()
    text = "\n".join((*shown, caplog.text, captured.out, captured.err))
    assert len(shown) == 7
    assert found_in(text, [PROMPT, OUTPUT, SECRET, HEADER, NAME, origin]) == []


@pytest.mark.parametrize("value", [f"{SECRET}\n", f"{SECRET}\x00", f" {SECRET}", f"{SECRET}\u00e9"])
def test_an_unusable_secret_is_in_no_message_and_no_traceback(value: str) -> None:
    try:
        SecretStore({NAME: value}).resolve(f"env:{NAME}")
    except TascError as error:
        text = "".join(traceback.format_exception(error)) + repr(error) + str(vars(error))
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
        text = "".join(traceback.format_exception(error)) + repr(error)
    else:
        pytest.fail("the generation was taken")
    assert found_in(text, [PROMPT, "127.0.0.1:9"]) == []


async def no_lease() -> None:
    return
