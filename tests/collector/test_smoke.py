"""The manual smoke: which variables are taken, what is sent, and what is shown."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from typing import Any

import pytest

from tasc_collector.contract_servers import Behaviour, ContractServer
from tasc_collector.errors import InputError, NotAuthorized, TascError
from tasc_collector.smoke import CONTACTS, PROMPT, read_target, run_contacts, run_real
from tasc_collector.transport.clock import SystemClock

PREFIX = "TASC_LIVE_SMOKE_"


def variables(origin: str = "https://api.example.com", **changes: str | None) -> dict[str, str]:
    values: dict[str, str | None] = {
        "ENDPOINT": origin,
        "RUNTIME": "vllm",
        "RUNTIME_BUILD": "0.26.0",
        "ROUTE": "completions",
        "MODEL_ID": "org/model",
        "MODEL_REVISION": "r1",
        "BACKEND_NAME": "cpu",
        "BACKEND_BUILD": "1",
        "CONFIGURATION_DIGEST": "sha256:" + "c" * 64,
        **changes,
    }
    return {PREFIX + name: value for name, value in values.items() if value is not None}


def test_no_variable_is_the_fixture_mode() -> None:
    assert read_target({"HOME": "/x", "CI": "true"}) is None


@pytest.mark.parametrize(
    "environ",
    [
        variables(ROUTE=None),
        variables(ENDPONT="x"),
        variables(AUTH_ENV="TASC_RUNTIME_AUTH_A"),
        variables(AUTH_HEADER="authorization"),
        variables(AUTH_ENV="TASC_OTHER_A", AUTH_HEADER="authorization"),
        variables(AUTH_ENV="TASC_RUNTIME_AUTH_A", AUTH_HEADER="cookie"),
        variables(ALLOW_LOOPBACK="1"),
        variables(ALLOW_LOOPBACK="0"),
        variables("http://127.0.0.1:8000"),
        variables("http://127.0.0.1:8000", ALLOW_LOOPBACK="yes"),
        variables("http://127.0.0.2:8000", ALLOW_LOOPBACK="1"),
        variables("https://169.254.169.254"),
        variables("https://10.0.0.1"),
        variables("https://api.example.com/"),
        variables("https://api.example.com/v1"),
        variables("https://user@api.example.com"),
        variables(RUNTIME="other"),
        variables(RUNTIME_BUILD="latest"),
        variables(ROUTE="generate"),
        variables(CONFIGURATION_DIGEST="sha256:short"),
        variables(MODEL_ID=""),
        {**variables(), "CI": "1"},
        {**variables(), "GITHUB_ACTIONS": "true"},
    ],
)
def test_anything_but_the_whole_contract_is_refused_before_contact(environ: dict[str, str]) -> None:
    with pytest.raises(InputError) as refusal:
        read_target(environ)
    assert refusal.value.way_out
    assert "api.example.com/" not in str(refusal.value)


def test_a_conditional_route_is_refused_with_the_command_that_obtains_a_receipt() -> None:
    with pytest.raises(NotAuthorized) as refusal:
        read_target(variables(ROUTE="chatCompletions"))
    assert "tasc probe" in str(refusal.value)


def real(server: ContractServer, environ: dict[str, str]) -> Any:
    target = read_target(environ)
    assert target is not None
    return asyncio.run(run_real(target, environ, clock=SystemClock()))


def test_real_mode_makes_one_call_and_shows_identity_and_persistence_only() -> None:
    with ContractServer("vllm", "0.26.0", behaviour=Behaviour(tokens=8, answer_prefix="CANARY-OUTPUT ")) as server:
        environ = {
            **variables(
                server.origin,
                ALLOW_LOOPBACK="1",
                MODEL_ID=server.model,
                AUTH_ENV="TASC_RUNTIME_AUTH_A",
                AUTH_HEADER="authorization",
            ),
            "TASC_RUNTIME_AUTH_A": "Bearer CANARY-SECRET",
        }
        record = real(server, environ)
        assert server.ledger.inference_calls == 1
        origin = server.origin
    line = record.line()
    value = json.loads(line)
    assert record.completed
    assert set(value) == {"instance", "persistence"}
    assert value["persistence"]["status"] == "completed"
    assert value["persistence"]["providerUsage"]["outputTokens"] == 8
    for hidden in ("CANARY", PROMPT, origin, origin.removeprefix("http://"), "TASC_RUNTIME_AUTH_A", "live-smoke-auth"):
        assert hidden not in line


def text_of(server: ContractServer) -> str:
    """What the server answers the smoke's one request with."""
    asked = {"model": server.model, "prompt": PROMPT, "max_tokens": 8, "temperature": 0}
    request = urllib.request.Request(  # noqa: S310 - our own server on loopback
        server.origin + "/v1/completions", json.dumps(asked).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - as above
        return str(json.load(answer)["choices"][0]["text"])


@pytest.mark.parametrize("prefix", ["CANARY ", "Z\u00fcrich \u4e16\u754c "])
def test_a_record_that_holds_the_output_is_not_shown_in_any_language(prefix: str) -> None:
    with ContractServer("vllm", "0.26.0", behaviour=Behaviour(tokens=8, answer_prefix=prefix)) as server:
        held = variables(server.origin, ALLOW_LOOPBACK="1", MODEL_ID=server.model, BACKEND_NAME=text_of(server))
        with pytest.raises(TascError) as refusal:
            real(server, held)
    assert "nothing is printed" in str(refusal.value)
    assert prefix.strip() not in str(refusal.value)


def test_a_missing_secret_is_recorded_and_not_a_success() -> None:
    with ContractServer("vllm", "0.26.0", behaviour=Behaviour(tokens=8)) as server:
        record = real(
            server,
            variables(
                server.origin,
                ALLOW_LOOPBACK="1",
                MODEL_ID=server.model,
                AUTH_ENV="TASC_RUNTIME_AUTH_A",
                AUTH_HEADER="x-api-key",
            ),
        )
        assert server.ledger.connections == 0
    assert not record.completed
    assert record.persistence["dispatchState"] == "not_sent"
    assert record.persistence["error"]["category"] == "authentication"


def test_without_variables_six_contacts_end_as_they_must() -> None:
    results = asyncio.run(run_contacts(clock=SystemClock()))
    assert [result.contact for result in results] == list(CONTACTS)
    assert len(results) == 6
    assert all(result.good for result in results)
