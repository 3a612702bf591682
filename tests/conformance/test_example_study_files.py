"""``tasc assess-files`` on the original authors' example study: the published result, and nothing from files that are wrong."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
import typer
from typer.testing import CliRunner, Result

from tasc_collector.canonical import canonical_bytes
from tasc_collector.contracts.controller import ControllerSnapshot
from tasc_collector.contracts.decision import AssessmentDecision
from tasc_collector.contracts.proposal import ProposedExperiment
from tasc_collector.errors import DigestMismatch, InputError, SignatureError, TascError
from tasc_collector.wire.records import read_record_file
from tasc_pipeline.cli import file_study

INTEROP = Path(__file__).resolve().parents[3] / "shared" / "interop"

pytestmark = pytest.mark.skipif(not INTEROP.is_dir(), reason="the interop files are not beside this repository")

TRACES, EVIDENCE = "development-traces.ndjson", "development-evidence.ndjson"


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A copy of the study that a test may spoil."""
    folder = tmp_path / "study"
    shutil.copytree(INTEROP, folder)
    return folder


def run(*words: str) -> Result:
    app = typer.Typer()
    file_study.register(app)
    app.callback()(lambda: None)
    return CliRunner().invoke(app, ["assess-files", *words])


def test_the_files_alone_give_the_published_result(tmp_path: Path) -> None:
    done = run(str(INTEROP), "--out", str(tmp_path / "out"))
    assert done.exit_code == 0, done.exception
    published = read_record_file(ControllerSnapshot, INTEROP / "controller-snapshot.json").record
    (recorded,) = published.assessments
    development = read_record_file(AssessmentDecision, tmp_path / "out" / "development-decision.json").record
    window = read_record_file(AssessmentDecision, tmp_path / "out" / "window-decision.json").record
    proposal = read_record_file(ProposedExperiment, tmp_path / "out" / "experiment-proposal.json").record
    assert (development.status, development.decision_digest) == ("NOMINATED", recorded.decision_digest)
    assert window.status == "INSUFFICIENT_EVIDENCE"
    assert window.candidates[0].insufficiency_reasons == ("required-service-capacity-unavailable",)
    assert window.selected_policy_digest == development.selected_policy_digest
    assert (proposal.diagnosis, proposal.parent_assessment_digest) == ("unavailable-capacity", window.decision_digest)
    controller = read_record_file(ControllerSnapshot, tmp_path / "out" / "controller-snapshot.json").record
    assert controller == published
    for line in (
        "development: NOMINATED",
        "window: INSUFFICIENT_EVIDENCE",
        "controller: SHADOW_ASSESSING",
        "PROPOSED: unavailable-capacity",
    ):
        assert line in done.stdout
    assert "not moved" not in done.stdout


def test_without_a_snapshot_the_chain_is_made_from_the_protocol(study: Path, tmp_path: Path) -> None:
    (study / "controller-snapshot.json").unlink()
    (study / "experiment-budget.json").unlink()
    done = run(str(study), "--out", str(tmp_path / "out"))
    assert done.exit_code == 0, done.exception
    controller = read_record_file(ControllerSnapshot, tmp_path / "out" / "controller-snapshot.json").record
    published = read_record_file(ControllerSnapshot, INTEROP / "controller-snapshot.json").record
    assert (controller.state, controller.sequence) == ("SHADOW_ASSESSING", 5)
    assert controller.development_evidence == published.development_evidence
    assert controller.assessments == published.assessments
    assert not (tmp_path / "out" / "experiment-proposal.json").exists()


def _lines(study: Path, name: str, change: Callable[[list[bytes]], list[bytes]]) -> None:
    path = study / name
    path.write_bytes(b"\n".join(change(path.read_bytes().splitlines())) + b"\n")


def _set(line: bytes, name: str, value: object) -> bytes:
    return canonical_bytes({**orjson.loads(line), name: value})


EXPIRED = "the protocol expired at 2026-09-01T00:00:00.000Z: only drift, expiry and retirement are taken"
TOO_EARLY = "nothing happens before the protocol's creation at 2026-07-20T00:00:00.000Z"


@pytest.mark.parametrize(
    ("as_of", "reason", "rule"),
    [
        ("2026-09-01T00:00:00.000Z", "protocol-expired", EXPIRED),
        ("2026-07-19T23:59:59.999Z", "protocol-not-yet-valid", TOO_EARLY),
    ],
)
def test_a_stale_decision_stands_where_the_controller_does_not_take_it(
    study: Path, tmp_path: Path, as_of: str, reason: str, rule: str
) -> None:
    (study / "controller-snapshot.json").unlink()
    context = orjson.loads((study / "development-context.json").read_bytes())
    del context["contextDigest"]
    (study / "development-context.json").write_bytes(canonical_bytes({**context, "asOf": as_of}))
    done = run(str(study), "--out", str(tmp_path / "out"))
    assert done.exit_code == 0, done.exception
    assert "development: STALE" in done.stdout
    assert f"controller: COLLECTING after 2 events\ncontroller: not moved: {rule}\n" in done.stdout
    development = read_record_file(AssessmentDecision, tmp_path / "out" / "development-decision.json").record
    assert (development.status, reason in development.stale_reasons) == ("STALE", True)
    controller = read_record_file(ControllerSnapshot, tmp_path / "out" / "controller-snapshot.json").record
    assert (controller.state, controller.assessments) == ("COLLECTING", ())


def test_nothing_is_written_where_one_of_the_names_is_taken(study: Path, tmp_path: Path) -> None:
    (study / "controller-snapshot.json").unlink()
    out = tmp_path / "out"
    out.mkdir()
    (out / "controller-snapshot.json").write_bytes((INTEROP / "controller-snapshot.json").read_bytes())
    done = run(str(study), "--out", str(out))
    assert isinstance(done.exception, InputError)
    assert "a different file is already there" in str(done.exception)
    assert [path.name for path in out.iterdir()] == ["controller-snapshot.json"]


def _forge_trace(study: Path) -> None:
    def forge(lines: list[bytes]) -> list[bytes]:
        trace = orjson.loads(lines[2])
        trace["workload"]["declaredTrafficWeight"] += 1
        return [*lines[:2], canonical_bytes(trace), *lines[3:]]

    _lines(study, TRACES, forge)


def _change(name: str, change: Callable[[list[bytes]], list[bytes]]) -> Callable[[Path], None]:
    return lambda study: _lines(study, name, change)


def _shorten(*names: str) -> Callable[[Path], None]:
    def shorten(study: Path) -> None:
        for name in names:
            _lines(study, name, lambda lines: lines[:-1])

    return shorten


def _remove(name: str) -> Callable[[Path], None]:
    return lambda study: (study / name).unlink()


def _give_the_window_to_development(study: Path) -> None:
    for part in ("traces.ndjson", "evidence.ndjson", "context.json"):
        shutil.copy(study / f"online-{part}", study / f"development-{part}")


def _judge_the_window_early(study: Path) -> None:
    context = orjson.loads((study / "online-context.json").read_bytes())
    del context["contextDigest"]
    (study / "online-context.json").write_bytes(canonical_bytes({**context, "asOf": "2026-07-23T00:01:30.000Z"}))


def _forge(lines: list[bytes]) -> list[bytes]:
    return [_set(lines[0], "signature", "A" * 86), *lines[1:]]


OTHER_DECISION = ("controller-snapshot.json", "assessments.decisionDigest")
SPOILT: dict[str, tuple[Callable[[Path], None], type[TascError], tuple[str, ...]]] = {
    "a line that breaks off": (
        _change(TRACES, lambda lines: [*lines[:-1], lines[-1][:200]]),
        InputError,
        (f"{TRACES} line 8", "rule: invalid-json"),
    ),
    "an unknown field": (
        _change(EVIDENCE, lambda lines: [lines[0], _set(lines[1], "note", "x"), *lines[2:]]),
        InputError,
        (f"{EVIDENCE} line 2", "note", "unknown field"),
    ),
    "an altered trace": (_forge_trace, SignatureError, (f"{TRACES} line 3", "signature")),
    "one trace twice": (
        _change(TRACES, lambda lines: [*lines, lines[0]]),
        InputError,
        (f"{TRACES} line 1, {TRACES} line 9", "rule: same-envelope-twice"),
    ),
    "one piece of evidence twice": (
        _change(EVIDENCE, lambda lines: [*lines, lines[3]]),
        InputError,
        (f"{EVIDENCE} line 4, {EVIDENCE} line 9", "rule: same-evidence-twice"),
    ),
    "evidence without its trace": (
        _shorten(TRACES),
        InputError,
        (f"{EVIDENCE} line 8", "rule: no-matching-trace"),
    ),
    "traces of another phase": (
        _give_the_window_to_development,
        InputError,
        (f"{TRACES} line ", "a development assessment takes traces of the split dev only"),
    ),
    "a window with less than its manifest lists": (
        _shorten("online-traces.ndjson", "online-evidence.ndjson"),
        DigestMismatch,
        ("traceSetDigest", "a decision is made from exactly what the manifest lists"),
    ),
    "a window as of another instant than its manifest": (
        _judge_the_window_early,
        DigestMismatch,
        ("evaluatorSetDigest", "the context (instant, trust, revocations) that it was sealed under"),
    ),
    "other sources than the controller recorded": (_shorten(TRACES, EVIDENCE), DigestMismatch, OTHER_DECISION),
    "forged evidence where the controller recorded a decision": (
        _change(EVIDENCE, _forge),
        DigestMismatch,
        OTHER_DECISION,
    ),
    "a phase without its context": (
        _remove("online-context.json"),
        InputError,
        ("online-context.json", "a file is missing"),
    ),
    "a window without its manifest": (
        _remove("window-manifest.json"),
        InputError,
        ("window-manifest.json", "a file is missing"),
    ),
    "more rows than the caller allows": (
        _change("work-budget.json", lambda lines: [_set(b"".join(lines), "maxTraceRows", 7)]),
        InputError,
        ("work-budget.json", "maxTraceRows", "needs 8; the budget allows 7"),
    ),
}


@pytest.mark.parametrize(("spoil", "kind", "words"), SPOILT.values(), ids=[name.replace(" ", "-") for name in SPOILT])
def test_wrong_files_are_named_and_nothing_is_decided(
    study: Path, tmp_path: Path, spoil: Callable[[Path], None], kind: type[TascError], words: tuple[str, ...]
) -> None:
    spoil(study)
    done = run(str(study), "--out", str(tmp_path / "out"))
    assert type(done.exception) is kind
    assert isinstance(done.exception, TascError)
    for word in words:
        assert word in str(done.exception)
    assert done.exception.way_out
    assert done.stdout == ""
    assert not (tmp_path / "out").exists()


def test_forged_evidence_scores_nothing_and_is_told(study: Path, tmp_path: Path) -> None:
    _lines(study, EVIDENCE, _forge)
    (study / "controller-snapshot.json").unlink()
    done = run(str(study), "--out", str(tmp_path / "out"))
    assert done.exit_code == 0, done.exception
    assert "1 pieces of evidence score nothing: invalid-signature" in done.stdout
    assert "window: not judged, because development nominated nothing" in done.stdout
    development = read_record_file(AssessmentDecision, tmp_path / "out" / "development-decision.json").record
    assert development.status == "INSUFFICIENT_EVIDENCE"
    assert not (tmp_path / "out" / "window-decision.json").exists()
