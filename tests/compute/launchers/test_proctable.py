"""The process table, real and as files in the shape of ``/proc``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tasc_compute.clock import SystemClock
from tasc_compute.contracts import EngineId, EngineRuntimeKind, InstanceRecord, ProcessReference
from tasc_compute.launchers.base import StopOutcome
from tasc_compute.launchers.process import ProcessLauncher
from tasc_compute.launchers.proctable import LinuxProcessTable, ProcessInfo, PsutilProcessTable
from tasc_compute.state import Liveness

BOOT = "11111111-2222-3333-4444-555555555555"


def fake_proc(root: Path, *rows: str, boot: str = BOOT) -> LinuxProcessTable:
    (root / "sys/kernel/random").mkdir(parents=True, exist_ok=True)
    (root / "sys/kernel/random/boot_id").write_text(boot + "\n")
    for row in rows:
        folder = root / row.split(" ", 1)[0]
        folder.mkdir(exist_ok=True)
        (folder / "stat").write_text(row)
    return LinuxProcessTable(root)


def stat(pid: int, *, comm: str = "engine", state: str = "S", parent: int = 1, group: int, start: int) -> str:
    middle = " ".join(["0"] * 15)
    return f"{pid} ({comm}) {state} {parent} {group} {group} {middle} {start} 0 0\n"


def record(pid: int, token: str | None, port: int = 8000) -> InstanceRecord:
    time = "2026-01-02T03:04:05.000Z"
    reference = ProcessReference(pid, token)
    return InstanceRecord(
        "one", "self", EngineId.VLLM, "one", EngineRuntimeKind.PROCESS, reference, port, (), "nonce", time, time
    )


def test_a_command_name_with_spaces_and_parentheses_does_not_shift_the_fields(tmp_path):
    table = fake_proc(tmp_path, stat(42, comm="a) S 1 (b c", group=42, start=777))
    assert table.read(42) == ProcessInfo(42, 1, 42, 42, f"{BOOT}:777", dead=False)


@pytest.mark.parametrize(
    ("state", "dead"), [("R", False), ("S", False), ("D", False), ("T", False), ("Z", True), ("X", True)]
)
def test_a_zombie_is_dead(tmp_path, state, dead):
    """Lesson 14: a signal to a zombie succeeds, so only the state tells."""
    row = fake_proc(tmp_path, stat(42, state=state, group=42, start=1)).read(42)
    assert row is not None
    assert row.dead is dead


def test_a_process_whose_first_thread_ended_lives_as_long_as_another_of_its_threads(tmp_path):
    """Lessons 8 and 14: it reads as a zombie, yet it runs, holds its device and cannot be reaped."""
    release = tmp_path / "release"
    os.mkfifo(release)
    code = f"import ctypes,threading; threading.Thread(target=open, args=({str(release)!r},)).start(); "
    code += "ctypes.CDLL(None).pthread_exit(None)"
    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", code])
    table = LinuxProcessTable()
    while (first_thread := Path(f"/proc/{child.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]) != "Z":
        assert first_thread in "RSD"
    row = table.read(child.pid)
    assert row is not None
    assert not row.dead
    assert child.poll() is None
    release.write_bytes(b"")  # the other thread ends, and with it the process
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    row = table.read(child.pid)
    assert row is not None
    assert row.dead
    child.wait(30)


def test_a_damaged_row_is_no_row(tmp_path):
    table = fake_proc(tmp_path, "42 (x", "43 (x) S", stat(44, group=44, start=1))
    assert [row.pid for row in table.rows()] == [44]


@pytest.mark.parametrize(
    ("token", "rows", "liveness"),
    [
        (f"{BOOT}:7", [stat(42, group=42, start=7)], Liveness.ALIVE),
        (f"{BOOT}:7", [stat(42, group=42, start=8)], Liveness.GONE),  # the pid was given to someone else
        ("other-boot:7", [stat(42, group=42, start=7)], Liveness.GONE),  # the same start time after a reboot
        (f"{BOOT}:7", [stat(42, state="Z", group=42, start=7)], Liveness.GONE),
        (f"{BOOT}:7", [stat(42, state="Z", group=42, start=7), stat(43, group=42, start=9)], Liveness.ALIVE),
        (f"{BOOT}:7", [], Liveness.GONE),
        (f"{BOOT}:7", [stat(43, group=42, start=9)], Liveness.UNKNOWN),  # a group that nothing proves
        (f"{BOOT}:7", [stat(43, group=43, start=9)], Liveness.GONE),
        (None, [stat(42, group=42, start=7)], Liveness.GONE),
    ],
)
def test_liveness_is_of_the_group_and_of_who_is_proved(tmp_path, token, rows, liveness):
    """Lessons 16 and 17: a pid alone proves nothing, in containers least of all."""
    launcher = ProcessLauncher(SystemClock(), fake_proc(tmp_path, *rows), {})
    assert launcher.liveness(record(42, token)) is liveness


def test_a_member_that_was_written_down_proves_its_group(tmp_path):
    table = fake_proc(tmp_path, stat(43, group=42, start=9), stat(44, group=42, start=10))
    known = ProcessLauncher(SystemClock(), table, {}, lambda _: {43: f"{BOOT}:9"})
    assert known.liveness(record(42, f"{BOOT}:7")) is Liveness.ALIVE
    other = ProcessLauncher(SystemClock(), table, {}, lambda _: {43: f"{BOOT}:8"})
    assert other.liveness(record(42, f"{BOOT}:7")) is Liveness.UNKNOWN


def test_nothing_is_signalled_that_has_another_token():
    """Lesson 16: a live process of ours stands at the recorded pid, and must survive."""
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    try:
        launcher = ProcessLauncher(SystemClock(), LinuxProcessTable(), {})
        assert launcher.stop(record(bystander.pid, f"{BOOT}:7"), 100) is StopOutcome.ABSENT
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait(30)


def test_both_tables_agree_about_this_process():
    linux, portable = LinuxProcessTable().read(os.getpid()), PsutilProcessTable().read(os.getpid())
    assert linux is not None
    assert portable is not None
    assert (linux.pid, linux.parent, linux.group, linux.session, linux.dead) == (
        portable.pid,
        portable.parent,
        portable.group,
        portable.session,
        portable.dead,
    )


def test_listeners_are_found_by_who_holds_the_socket(free_port):
    import socket

    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        for table in (LinuxProcessTable(), PsutilProcessTable()):
            assert table.listens([os.getpid()], port) is True
            assert table.listens([1], port) in (False, None)
        assert LinuxProcessTable().listener(port) == os.getpid()
    assert LinuxProcessTable().listens([os.getpid()], port) is False
    assert LinuxProcessTable().listener(port) is None


def test_a_table_without_network_files_cannot_tell(tmp_path):
    assert fake_proc(tmp_path).listens([1], 80) is None
