"""Every refusal of the command line: one message with what, where and the way out, an exit code, and nothing changed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command_line import tasc

ROOT = Path(__file__).resolve().parents[3]


def in_a_process(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `tasc` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", "from tasc_pipeline.cli import main; main()", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "TASC_HOME": str(home), "PYTHONPATH": str(ROOT)},
    )


def refused(done: subprocess.CompletedProcess[str], *parts: str) -> None:
    """Exit code 3 and one line that says all parts, the last of which is the way out."""
    assert done.returncode == 3, done.stderr
    message = done.stderr.strip().splitlines()[-1]
    assert message.startswith("refused: ") and " -> " in message
    for part in parts:
        assert part in message
    assert "Traceback" not in done.stderr


def test_a_command_without_a_state_folder_says_how_to_make_one(tmp_path: Path) -> None:
    for run in (in_a_process, tasc):
        refused(run(tmp_path / "none", "status"), "there is no state folder", "run: tasc init")


@pytest.mark.parametrize("command", ["verify", "assess", "report", "collect", "settle", "launch"])
def test_a_key_that_was_never_sealed_is_not_called_damaged(tmp_path: Path, command: str) -> None:
    home = tmp_path / "home"
    tasc(home, "init")
    done = tasc(home, command, "mistyped.r01-00000000")
    refused(done, "mistyped.r01-00000000: no window with this key was sealed", "run: tasc status")
    assert "backup" not in done.stderr


def test_init_is_repeatable_and_private(tmp_path: Path) -> None:
    home = tmp_path / "home"
    first = tasc(home, "init")
    assert first.returncode == 0 and "new key: operator" in first.stderr
    keys = {path: path.read_bytes() for path in (home / "keys").iterdir()}
    again = tasc(home, "init")
    assert again.returncode == 0 and "new key" not in again.stderr
    assert {path: path.read_bytes() for path in (home / "keys").iterdir()} == keys
    assert home.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (home / "keys").iterdir()} == {0o600}


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda home: home.write_text("x"), "a file is in the place"),
        (lambda home: home.symlink_to(home.parent), "symbolic link"),
        (lambda home: home.mkdir(mode=0o755), "others may read"),
    ],
)
def test_a_state_folder_that_is_not_ours_to_trust_is_refused(tmp_path: Path, make, part: str) -> None:  # type: ignore[no-untyped-def]
    home = tmp_path / "home"
    make(home)
    refused(tasc(home, "init"), part)


@pytest.mark.skipif(
    os.geteuid() != 0 or not sys.platform.startswith("linux"), reason="a read-only mount needs root on Linux"
)
def test_a_read_only_folder_is_refused_for_root_too(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    if (
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "ro,mode=0700", "tmpfs", str(home)],
            check=False,
            capture_output=True,
            timeout=60,
        ).returncode
        != 0
    ):
        pytest.skip("this machine does not allow mounts")
    try:
        refused(tasc(home, "init"), "cannot be written", "read-only")
    finally:
        subprocess.run(["umount", str(home)], check=True, timeout=60)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli") / "home"
    assert tasc(folder, "init").returncode == 0
    return folder


def test_unknown_names_are_refused_with_what_is_known(home: Path) -> None:
    refused(tasc(home, "seal", "nope"), "there is no such study (known: none)", "tasc study new")
    refused(tasc(home, "plan", "nope.r01-00000000"), "no window with this key was sealed", "tasc status")
    refused(tasc(home, "collect", "../../etc"), "this is no window key")
    refused(tasc(home, "plan", "a", "b", "c", "d"), "these words are no form of this command")


def test_a_server_that_is_not_there_is_refused(home: Path, tmp_path: Path) -> None:
    prompts = tmp_path / "p.txt"
    prompts.write_text("hello\n")
    done = tasc(
        home,
        "study",
        "new",
        "--champion",
        "http://127.0.0.1:9",
        "--candidate",
        "http://127.0.0.1:9",
        "--prompts",
        str(prompts),
    )
    refused(done, "no answer from this server", "start it")
    assert not (home / "studies" / "first").exists()


@pytest.mark.parametrize(
    "origin",
    [
        "http://10.0.0.5:8000",
        "http://localhost:8000",
        "https://user@host.example",
        "ftp://x",
        "http://127.0.0.1:8000/v1",
    ],
)
def test_an_origin_that_may_not_be_reached_is_refused(home: Path, tmp_path: Path, origin: str) -> None:
    prompts = tmp_path / "p.txt"
    prompts.write_text("hello\n")
    refused(
        tasc(
            home, "study", "new", "--champion", origin, "--candidate", "http://127.0.0.1:9", "--prompts", str(prompts)
        ),
        " -> ",
    )


def test_an_occupied_port_of_the_demo_is_named(home: Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused(tasc(home, "demo", "--port", str(port)), f"port {port}", "tasc demo --port 0")


def test_wrong_words_are_a_usage_error(home: Path) -> None:
    done = tasc(home, "seal", "--speed", "3")
    assert done.returncode == 2 and "No such option" in done.stderr and "Traceback" not in done.stderr


def test_validate_names_file_field_and_rule(home: Path, tmp_path: Path) -> None:
    ring = home / "keys" / "key-ring.json"
    good = tasc(home, "validate", str(ring))
    assert good.returncode == 0 and "KeyRing sha256:" in good.stdout
    broken = tmp_path / "ring.json"
    broken.write_text(ring.read_text().replace('"role":"operator"', '"role":"boss"'))
    refused(tasc(home, "validate", str(broken)), "ring.json", "keys.", "role")
