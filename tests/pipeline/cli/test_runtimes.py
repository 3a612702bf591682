"""``tasc runtimes``: the matrix, one runtime, the page, and adding a build of one's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tasc_collector.errors import InputError
from tasc_collector.runtimes.profile import Capability, CapabilityState
from tasc_pipeline.cli import runtimes
from tasc_pipeline.home import Home
from tasc_pipeline.home.builds import add_build, home_profile, load_builds
from tasc_pipeline.home.layout import FOLDERS


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A state folder that ``TASC_HOME`` names."""
    root = tmp_path / "state"
    root.mkdir(mode=0o700)
    for name in FOLDERS:
        (root / name).mkdir(mode=0o700)
    monkeypatch.setenv("TASC_HOME", str(root))
    return Home(root)


def run(*words: str) -> str:
    """Standard output of a command that succeeds; our own errors pass through."""
    app = typer.Typer()
    runtimes.register(app)
    app.command("other")(lambda: None)
    result = CliRunner().invoke(app, ["runtimes", *words], catch_exceptions=False, standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.stdout


def test_the_matrix_has_a_column_per_build_and_a_row_per_capability(tmp_path, monkeypatch):
    monkeypatch.setenv("TASC_HOME", str(tmp_path / "none"))
    lines = run().splitlines()
    assert lines[0].split() == ["llama.cpp", "lm-studio", "mlx-lm", "ollama", "sglang", "tensorrt-llm", "tgi", "vllm"]
    assert lines[1].split() == [
        "capability",
        "b10156",
        "0.4.1",
        "0.31.3",
        "0.32.5",
        "0.5.16",
        "1.2.1",
        "3.3.7",
        "0.26.0",
    ]
    rows = {line.split()[0]: line.split()[1:] for line in lines[2:19]}
    assert rows["completions"] == ["S", "?", "C", "C", "S", "S", "?", "S"]
    assert set(rows) == {name.value for name in Capability}


def test_the_matrix_as_json_has_paths_by_framing(tmp_path, monkeypatch):
    monkeypatch.setenv("TASC_HOME", str(tmp_path / "none"))
    lines = {value["runtime"]: value for value in map(json.loads, run("--json").splitlines())}
    assert lines["tgi"]["routes"]["nativeGenerate"] == {"json": "/generate", "sse": "/generate_stream"}
    assert lines["tgi"]["capabilities"]["responses"] == "unsupported"


def test_one_runtime_is_shown_whole(home):
    text = run("show", "sglang")
    assert text.startswith("## SGLang 0.5.16\n")
    assert "`/server_info`" in text
    assert "## vLLM" not in text
    with pytest.raises(InputError, match=r"choose one of llama\.cpp b10156"):
        run("show", "sglang", "--build", "9.9.9")


def test_the_page_is_printed_as_it_is_checked_in():
    root = Path(__file__).resolve().parents[3]
    assert run("document") == (root / "docs" / "runtimes.md").read_text()


def test_a_build_is_added_with_every_capability_unknown(home):
    text = run("try", "vllm", "0.33.0", "--endpoint", "candidate", "--declared-by", "operator-1")
    path = home.root / "builds" / "vllm-0.33.0.json"
    assert text.startswith(f"wrote {path}\n")
    assert "  tasc probe STUDY/candidate completions --effect inference-canary\n" in text
    value = json.loads(path.read_bytes())
    assert value["createdAt"]
    assert {key: value[key] for key in value if key != "createdAt"} == {
        "version": "tasc-build-profile-v1",
        "runtime": "vllm",
        "build": "0.33.0",
        "wireBase": {"runtime": "vllm", "build": "0.26.0"},
        "declaredBy": "operator-1",
    }
    profile = home_profile(home, "vllm", "0.33.0")
    assert {profile.state(capability) for capability in Capability} == {CapabilityState.UNKNOWN}
    assert "0.33.0" in run().splitlines()[1]
    assert run("show", "vllm", "--build", "0.33.0").startswith("## vLLM 0.33.0 on the wire of 0.26.0\n")


def test_the_same_build_twice_keeps_the_first_file(home):
    run("try", "vllm", "0.33.0", "--endpoint", "candidate", "--declared-by", "operator-1")
    before = (home.root / "builds" / "vllm-0.33.0.json").read_bytes()
    assert run("try", "vllm", "0.33.0", "--endpoint", "candidate", "--declared-by", "operator-2").startswith("kept ")
    assert (home.root / "builds" / "vllm-0.33.0.json").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("vllm", "0.26.0"), "registered already"),
        (("vlm", "0.33.0"), "not registered"),
        (("vllm", "0.33.0", "--base", "0.25.0"), "wire base is not a registered build"),
        (("vllm", "../x"), "build"),
    ],
)
def test_what_cannot_be_added_is_refused_and_nothing_is_written(home, words, message):
    with pytest.raises(InputError, match=message):
        run("try", *words, "--endpoint", "candidate", "--declared-by", "operator-1")
    assert not (home.root / "builds").exists()


def test_an_unregistered_build_is_refused_without_its_file(home):
    with pytest.raises(InputError, match="tasc runtimes try vllm"):
        home_profile(home, "vllm", "0.33.0")


def test_a_damaged_build_file_is_named(home):
    run("try", "vllm", "0.33.0", "--endpoint", "candidate", "--declared-by", "operator-1")
    (home.root / "builds" / "vllm-0.34.0.json").write_text("{}")
    with pytest.raises(InputError) as refused:
        load_builds(home)
    assert refused.value.where == "vllm-0.34.0.json"


def test_another_file_in_the_place_of_a_build_is_left(home):
    run("try", "vllm", "0.33.0", "--endpoint", "candidate", "--declared-by", "operator-1")
    (record,) = load_builds(home)
    with pytest.raises(InputError, match="different file"):
        add_build(home, record.model_copy(update={"declared_by": "operator-2"}))
