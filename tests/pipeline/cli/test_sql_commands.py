from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import typer
from typer.testing import CliRunner, Result

from tasc_collector.errors import InputError
from tasc_pipeline.cli import sql as commands
from tasc_pipeline.home.layout import FOLDERS
from tests.support import sample_warehouse

KEY = sample_warehouse.KEYS[1]


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("house") / "state"
    sample_warehouse.build(home)
    for name in FOLDERS:
        (home / name).mkdir(mode=0o700, exist_ok=True)
    folder = home / "windows" / KEY
    folder.mkdir(parents=True, mode=0o700)
    (folder / "declaration.json").write_text("{}")
    (folder / "assessment.json").write_bytes(sample_warehouse.assessment(KEY).canonical())
    return home


@pytest.fixture
def tasc(state: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TASC_HOME", str(state))
    monkeypatch.setenv("COLUMNS", "200")
    app = typer.Typer()
    commands.register(app)

    def run(*words: str, typed: str | None = None) -> Result:
        return CliRunner().invoke(app, words, input=typed)

    return run


def test_a_query_prints_a_table(tasc) -> None:
    ran = tasc("sql", "SELECT profile_id, planned FROM coverage ORDER BY ALL LIMIT 1")
    assert ran.exit_code == 0
    assert [line.split() for line in ran.stdout.splitlines() if "vllm" in line] == [["vllm-0-26-0", "│", "80"]]


def test_a_question_about_one_window_as_csv(tasc) -> None:
    ran = tasc("sql", "@coverage", "--window", KEY, "--csv")
    assert ran.stdout.splitlines() == [
        "window_key,profile_id,planned,success,failure,sent_unknown,not_sent,not_attempted,coverage",
        f"{KEY},vllm-0-26-0,80,79,0,1,0,0,0.9875",
        f"{KEY},vllm-0-33-0,80,77,2,0,1,0,0.9875",
    ]


def test_a_query_from_a_pipe_and_to_a_parquet_file(tasc, tmp_path: Path) -> None:
    assert tasc("sql", "--csv", typed="SELECT 1 AS one").stdout == "one\n1\n"
    ran = tasc("sql", "FROM windows", "--parquet", str(tmp_path / "w.parquet"))
    assert ran.exit_code == 0
    assert pq.read_table(tmp_path / "w.parquet").num_rows == 2


def test_a_window_that_is_not_there_or_that_the_query_does_not_ask_about_is_refused(tasc, tmp_path: Path) -> None:
    unknown = tasc("sql", "@latency", "--window", "nobody.r01-00000000", "--parquet", str(tmp_path / "w.parquet"))
    assert isinstance(unknown.exception, InputError)
    assert str(unknown.exception).startswith(
        f"nobody.r01-00000000: nothing is published for this window -> choose one of {KEY}"
    )
    assert not list(tmp_path.iterdir())
    ignored = tasc("sql", "SELECT count(*) FROM traces", "--window", KEY)
    assert "this query does not ask about one window" in str(ignored.exception) and not ignored.stdout
    asked = "SELECT count(*) AS n FROM traces WHERE window_key = getvariable('window_key')"
    assert tasc("sql", asked, "--window", KEY, "--csv").stdout == "n\n160\n"


@pytest.mark.parametrize("nothing", ["", ";", "-- a comment"])
def test_a_text_without_a_query_is_refused(tasc, nothing: str, tmp_path: Path) -> None:
    for words in ([], ["--csv"], ["--parquet", str(tmp_path / "none.parquet")]):
        ran = tasc("sql", *words, typed=nothing)
        assert isinstance(ran.exception, InputError) and " -> " in str(ran.exception), ran.exception
    assert not list(tmp_path.iterdir())


def test_one_result_has_one_form(tasc, tmp_path: Path) -> None:
    ran = tasc("sql", "SELECT 1", "--csv", "--parquet", str(tmp_path / "one.parquet"))
    assert "choose --csv or --parquet" in str(ran.exception) and not list(tmp_path.iterdir())


def test_questions_are_listed_with_what_they_ask(tasc) -> None:
    ran = tasc("sql", "--list")
    assert "@itl-by-length-and-hour" in ran.stdout
    assert "Is the candidate slower than the champion on the same case?" in ran.stdout


def test_verify_checks_all_parts_and_names_a_damaged_one(tasc, state: Path) -> None:
    keys = state / "keys"
    keys.mkdir(mode=0o700, exist_ok=True)
    (keys / "key-ring.json").write_text(json.dumps({"version": "tasc-key-ring-v1", "keys": []}))
    ran = tasc("sql", "--verify")
    assert "signed by a key that is not known" in str(ran.exception)
    (keys / "key-ring.json").write_text(
        json.dumps(
            {
                "version": "tasc-key-ring-v1",
                "keys": [
                    {
                        "keyId": "collector-1",
                        "role": "collector",
                        "algorithm": "ed25519",
                        "publicKeySpki": sample_warehouse.SIGNER.key.public_key.spki,
                        "validFrom": "2026-11-01T00:00:00.000Z",
                        "validUntil": "2027-11-01T00:00:00.000Z",
                        "revokedAt": None,
                    }
                ],
            }
        )
    )
    assert tasc("sql", "--verify").stdout == "14 parts: every byte and signature is what was published\n"


def test_a_report_is_written_beside_the_assessment_and_its_path_printed(tasc, state: Path) -> None:
    ran = tasc("report", KEY)
    page = state / "windows" / KEY / "report.html"
    assert ran.stdout.strip() == str(page)
    assert "✖ worse" in page.read_text()
    assert tasc("report", KEY, "--markdown").stdout.startswith(f"# vllm-upgrade: window {KEY}\n")


def test_a_window_without_an_assessment_names_the_next_command(tasc, state: Path) -> None:
    other = state / "windows" / "other.r01-00000000"
    other.mkdir()
    (other / "declaration.json").write_text("{}")
    ran = tasc("report", "other.r01-00000000")
    assert isinstance(ran.exception, InputError)
    assert "run: tasc assess other.r01-00000000" in str(ran.exception)


def test_show_prints_both_timelines(tasc) -> None:
    ran = tasc("show", KEY, "case-00000")
    assert "vllm-0-26-0: at ms" in ran.stdout
    assert "vllm-0-33-0: at ms" in ran.stdout


def test_python_opens_the_warehouse_in_one_line(state: Path) -> None:
    line = (
        "from tasc_pipeline.warehouse import connect; "
        "print(connect('.tasc').execute('SELECT count(*) FROM traces').fetchone()[0])"
    )
    folder = state.parent
    link = folder / ".tasc"
    link.symlink_to(state)
    root = Path(__file__).parents[3]
    ran = subprocess.run(
        [sys.executable, "-c", line],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert ran.stdout == "320\n"
