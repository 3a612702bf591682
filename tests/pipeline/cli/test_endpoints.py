"""``tasc smoke`` from the shell; endpoints and egress without a home; what a firewall is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer
from typer.testing import CliRunner

from tasc_collector.errors import Category, DispatchState, InputError, TransportError
from tasc_collector.transport.check import CheckStep
from tasc_pipeline.cli import endpoints, smoke
from tasc_pipeline.home import Home
from tests.support.calls import policy_for
from tests.support.window import world


def app_with(*modules: object) -> typer.Typer:
    app = typer.Typer()
    for module in modules:
        module.register(app)  # type: ignore[attr-defined]  # every module of the command line has it
    return app


@pytest.fixture
def operators_hands(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable that says that a machine is at the keyboard: there the smoke refuses first."""
    for name in ("CI", "GITHUB_ACTIONS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("operators_hands")
def test_smoke_without_variables_makes_six_contacts() -> None:
    app = app_with(smoke)
    app.callback()(lambda: None)
    done = CliRunner().invoke(app, ["smoke"])
    assert done.exit_code == 0
    lines = done.stdout.strip().splitlines()
    assert len(lines) == 6
    assert all(line.endswith("ok") for line in lines)


@pytest.mark.usefixtures("operators_hands")
def test_smoke_with_a_partial_contract_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASC_LIVE_SMOKE_ENDPOINT", "https://api.example.com")
    app = app_with(smoke)
    app.callback()(lambda: None)
    done = CliRunner().invoke(app, ["smoke"])
    assert isinstance(done.exception, InputError)
    assert "missing" in str(done.exception)


def test_egress_and_check_without_a_state_folder_say_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setenv("TASC_HOME", f"{tmp_path}/absent")
    app = app_with(endpoints)
    for words in (["egress"], ["endpoints", "check"]):
        done = CliRunner().invoke(app, words)
        assert isinstance(done.exception, InputError)
        assert done.exception.way_out


RESOLVER = "# made by a test\nnameserver 127.0.0.53\n"


@pytest.fixture
def egress(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., str]:
    """``tasc egress`` on one study with a public name, a literal and a loopback port; the name is looked up in a table."""
    origins = ("https://api.example.com", "https://1.1.1.1", "http://127.0.0.1:8000")
    studies = {
        f"study-{number}": SimpleNamespace(policy=SimpleNamespace(record=policy_for(origin)), extension=None)
        for number, origin in enumerate(origins)
    }
    resolv_conf = tmp_path / "resolv.conf"
    resolv_conf.write_text(RESOLVER)

    async def looked_up(name: str, port: int) -> list[str]:
        return {("api.example.com", 443): ["93.184.216.34", "2606:2800::1"]}[name, port]

    monkeypatch.setattr(endpoints, "home", lambda: Home(tmp_path))
    monkeypatch.setattr(endpoints, "study_ids", lambda home: list(studies))
    monkeypatch.setattr(endpoints, "load_study", lambda home, name: studies[name])
    monkeypatch.setattr(endpoints, "lookup", looked_up)
    monkeypatch.setattr(endpoints, "RESOLV_CONF", resolv_conf)

    def run(*words: str) -> str:
        done = CliRunner().invoke(app_with(endpoints), ["egress", *words])
        assert done.exit_code == 0, done.exception
        return done.stdout

    return run


def test_egress_for_systemd_opens_the_hosts_resolver_and_says_which_name_is_not_looked_up(
    egress: Callable[..., str],
) -> None:
    assert egress("--systemd").splitlines() == [
        "[Service]",
        "IPAddressDeny=any",
        "# the resolver: names are looked up there for every call",
        "IPAddressAllow=127.0.0.53/32",
        "# 1.1.1.1:443",
        "IPAddressAllow=1.1.1.1/32",
        "# 127.0.0.1:8000",
        "IPAddressAllow=127.0.0.1/32",
        "# api.example.com:443 is a public name; its addresses change: see them with --resolve",
    ]


def test_egress_looks_public_names_up_where_that_is_asked_for(egress: Callable[..., str]) -> None:
    assert egress("--systemd", "--resolve").splitlines()[-3:] == [
        "# api.example.com:443",
        "IPAddressAllow=93.184.216.34/32",
        "IPAddressAllow=2606:2800::1/128",
    ]
    [row] = [line for line in egress("--resolve").splitlines() if "api.example.com" in line]
    assert "93.184.216.34, 2606:2800::1" in row
    [row] = [line for line in egress().splitlines() if "api.example.com" in line]
    assert "every public answer of" in row


def test_egress_leaves_out_what_is_not_found_or_would_be_refused(
    egress: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def not_found(name: str, port: int) -> list[str]:
        raise TransportError("resolve-failed", DispatchState.NOT_SENT, Category.TRANSPORT)

    async def private(name: str, port: int) -> list[str]:
        return ["93.184.216.34", "10.0.0.1"]

    for lookup in (not_found, private):
        monkeypatch.setattr(endpoints, "lookup", lookup)
        lines = egress("--systemd", "--resolve").splitlines()
        assert lines[-1].startswith("# api.example.com:443 is a public name")
        assert "IPAddressAllow=1.1.1.1/32" in lines
        assert "10.0.0.1" not in "".join(lines)


def test_a_check_of_a_study_walks_to_both_servers_and_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    app = app_with(endpoints)
    with world(tmp_path, cases=1, warm_up=0) as made:
        monkeypatch.setenv("TASC_HOME", str(made.home.root))
        open_ = CliRunner().invoke(app, ["endpoints", "check", "--study", "first"])
        one = CliRunner().invoke(app, ["endpoints", "check", "candidate"])
    closed = CliRunner().invoke(app, ["endpoints", "check"])
    assert (open_.exit_code, one.exit_code, closed.exit_code) == (0, 0, 1)
    assert open_.stdout.count("literal loopback, allowed by localMode") == 2
    assert one.stdout.count("literal loopback, allowed by localMode") == 1
    assert "connect-refused" in closed.stdout


def test_a_check_shows_brackets_of_an_address_or_of_a_certificates_name_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    details = ("https://[fd12::1]:8443 (address)", "issued by [/b] [red]x, ends 2030-01-01, in 9 days (soon)")

    async def checked(what: object, **also: object) -> tuple[CheckStep, ...]:
        return tuple(CheckStep("step", good=True, detail=detail) for detail in details)

    study = SimpleNamespace(
        policy=SimpleNamespace(record=policy_for("https://api.example.com")), extension=None, endpoints={}
    )
    monkeypatch.setattr(endpoints, "check_endpoint", checked)
    monkeypatch.setattr(endpoints, "_one_study", lambda study_id: study)
    monkeypatch.setattr(endpoints, "home", lambda: SimpleNamespace(keys=None))
    shown = CliRunner().invoke(app_with(endpoints), ["endpoints", "check"]).stdout
    assert all(detail in shown for detail in details)


def test_egress_for_kubernetes_is_a_network_policy(egress: Callable[..., str]) -> None:
    policy = json.loads(egress("--kubernetes"))
    assert (policy["kind"], policy["metadata"]["name"]) == ("NetworkPolicy", "tasc-collector")
    dns, literal, public = policy["spec"]["egress"]
    assert [port["port"] for port in dns["ports"]] == [53, 53]
    assert literal == {"to": [{"ipBlock": {"cidr": "1.1.1.1/32"}}], "ports": [{"protocol": "TCP", "port": 443}]}
    assert [block["ipBlock"]["cidr"] for block in public["to"]] == ["0.0.0.0/0", "2000::/3"]


def test_egress_lists_the_webhook_that_a_study_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with world(tmp_path, cases=1, warm_up=0) as made:
        monkeypatch.setenv("TASC_HOME", str(made.home.root))
        (made.home.study("first") / "notices.toml").write_text(
            'version = "tasc-notice-rules-v1"\n[webhook]\norigin = "https://hooks.example.com"\npath = "/tasc"\n'
        )
        app = app_with(endpoints)
        table = CliRunner().invoke(app, ["egress"], env={"COLUMNS": "200"}).stdout
        policy = CliRunner().invoke(app, ["egress", "--kubernetes"]).stdout
        systemd = CliRunner().invoke(app, ["egress", "--systemd"]).stdout
    [line] = [line for line in table.splitlines() if "hooks.example.com" in line]
    assert "443" in line and "webhook of notices.toml" in line
    assert "# hooks.example.com:443" in systemd
    assert [rule["ports"] for rule in json.loads(policy)["spec"]["egress"]][1:] == [[{"protocol": "TCP", "port": 443}]]
