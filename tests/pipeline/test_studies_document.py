"""docs/studies.md: its commands run, its tables say what the code says, and the example beside it is complete."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from tasc_collector.contract_servers import ContractServer
from tasc_pipeline.cli.app import build
from tasc_pipeline.control.controller_table import PLAN_STATES
from tasc_pipeline.control.purposes import PURPOSES
from tasc_pipeline.home import Home
from tasc_pipeline.steps import fork_study, study_parts
from tests.support.window import QUICK

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "studies.md").read_text()
COMMANDS = [line[2:] for line in TEXT.splitlines() if line.startswith("$ tasc ")]


def _rows(first: str) -> list[list[str]]:
    """Cells of the table whose head begins with these words."""
    table = TEXT.split(f"\n| {first}", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in table]


def test_the_purposes_are_those_of_the_code() -> None:
    rows = {row[0].strip("`"): row for row in _rows("purpose |")}
    assert list(rows) == list(PURPOSES)
    for purpose, rule in PURPOSES.items():
        _, study, states, _, policy, leaves = rows[purpose]
        assert study == rule.kind
        assert states == (", ".join(PLAN_STATES[purpose]) if purpose in PLAN_STATES else "always")
        assert (
            policy
            == {"rules": "the comparison itself", "control": "the control", "selected": "the selected policy"}[
                rule.policy
            ]
        )
        assert leaves == ("link and manifest" if rule.manifest else "link")


def test_what_can_be_set_of_a_server_is_what_the_page_says() -> None:
    said = TEXT.split("Servers are set by alias and one of ", 1)[1].split(";", 1)[0]
    assert tuple(re.findall(r"`(\w+)`", said)) == tuple(fork_study.SERVER_SETTINGS)


@pytest.fixture
def servers() -> Iterator[tuple[ContractServer, ContractServer]]:
    with (
        ContractServer("vllm", behaviour=QUICK) as champion,
        ContractServer("llama.cpp", behaviour=QUICK) as candidate,
    ):
        yield champion, candidate


def test_every_command_of_the_page_runs_and_leaves_the_files_of_its_table(
    servers: tuple[ContractServer, ContractServer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TASC_HOME", str(tmp_path / ".tasc"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    command = typer.main.get_command(build())
    found = {"KEY": "", "DIGEST": "", "8000": str(servers[0].port), "8001": str(servers[1].port)}

    def run(line: str) -> str:
        line, _, to = line.partition(" > ")
        for word, value in found.items():
            line = re.sub(rf"\b{word}\b", value, line)
        if line.startswith("tasc seal"):
            line += " --lead 0.5"
        command.main(shlex.split(line)[1:], standalone_mode=False)
        said = capsys.readouterr().out
        if to:
            (tmp_path / to).write_text(said)
        return said

    run("tasc init")
    for line in COMMANDS:
        said = run(line)
        if line.startswith("tasc seal"):
            found["KEY"] = said.split()[-1]
        digest = re.search(r"^plan (sha256:[0-9a-f]{64})$", said, flags=re.MULTILINE)
        if digest is not None:
            found["DIGEST"] = digest[1]
        if "--dry-run" in line:
            assert "per day, every 1h: 2304 calls and 96 warm-up calls, at most 147552 output tokens" in said
            assert "nothing was written" in said
        if line.startswith("tasc validate"):
            assert [name.split(" ")[1] for name in said.splitlines()] == ["ExperimentProtocol", "Study", "StudyFork"]
    home = Home(tmp_path / ".tasc")
    _check_files(home)


def _check_files(home: Home) -> None:
    rows = _rows("file | kind")
    names = {row[0].strip("`"): row[1] for row in rows}
    for study, kind, forked in (
        ("first", "comparison", False),
        ("first-2", "comparison", True),
        ("choice", "decision", False),
    ):
        folder = home.study(study)
        exist = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
        exist = {name for name in exist if not name.startswith(("controller/", "ledger/", "authorizations/"))}
        patterns = {
            name: re.compile(
                name.replace(".", r"\.")
                .replace("ALIAS", "[a-z-]+")
                .replace("KIND", "[a-z-]+")
                .replace("DIGEST", "[0-9a-f]{8}")
            )
            for name, of in names.items()
            if of in ("both", kind) and (name != study_parts.FORK or forked)
        }
        for name, pattern in patterns.items():
            assert any(pattern.fullmatch(item) for item in exist), (study, name)
        assert {item for item in exist if not any(pattern.fullmatch(item) for pattern in patterns.values())} == set()
