"""A real process of the runner is killed on entry to each of its journal and socket calls; the servers' count is the judge.

This also proves that nothing goes past the shim: the calls that are struck are the kernel's, not ours.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tasc_collector.contract_servers import ContractServer
from tasc_collector.journal import RecordKind, is_sealed, scan
from tasc_collector.shadow.context import RunContext
from tests.support.real_runner import is_unknown
from tests.support.runner_process import QUICK, Window, collect

CASES = 10
CALLS = 2 * CASES
SCHEDULES = (1, 2, 5)
"""Pairs in flight of each schedule: the calls that one commit holds, and their order, differ."""
FILE_CALLS = ("flock", "fallocate", "pwrite64", "fdatasync", "fsync", "ftruncate", "rename")
SOCKET_CALLS = ("connect", "sendto", "recvmsg", "shutdown")
SAMPLE = 4
LIMIT_S = 240
"""A run takes a few seconds under strace."""
ROOT = Path(__file__).resolve().parents[2]

pytestmark = [
    pytest.mark.crash,
    pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed"),
]


@contextmanager
def _window(concurrency: int) -> Iterator[Window]:
    with ContractServer("vllm", behaviour=QUICK) as champion, ContractServer("llama.cpp", behaviour=QUICK) as candidate:
        yield Window({"a": champion, "b": candidate}, CASES, concurrency)


def _run(window: Window, folder: Path, *strace: str) -> tuple[int, int]:
    """Exit code of the process, and how many executions it was told are durable."""
    command = ["strace", "-f", "-qq", *strace, *window.command(folder)]  # --seccomp-bpf would inject no signal
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, text=True, timeout=LIMIT_S)
    return done.returncode, int((done.stdout.split("\n")[-2:-1] or ["0"])[0])


def _points(tmp_path: Path, concurrency: int, calls: tuple[str, ...]) -> list[tuple[str, int]]:
    """Each of these calls that an undisturbed run makes, with its number in its thread."""
    log = tmp_path / "strace.log"
    with _window(concurrency) as window:
        code, told = _run(window, tmp_path / "whole", "-o", str(log), "-e", "trace=" + ",".join(calls))
        assert (code, told, window.sent, window.most_sent) == (0, CALLS, CALLS, 1)
    counts: Counter[tuple[str, str]] = Counter()
    for match in re.finditer(r"^(\d+) +(\w+)\(", log.read_text(), re.MULTILINE):
        counts[match[1], match[2]] += 1
    most = {call: max((n for (_, name), n in counts.items() if name == call), default=0) for call in calls}
    return [(call, number) for call in calls for number in range(1, most[call] + 1)]


def _accepted(context: RunContext) -> int:
    if not context.folder.exists() or not list(context.folder.glob("segment-*")):
        return 0
    return sum(
        record.kind is RecordKind.ACCEPTED for record in scan(context.folder, context.binding, context.journal_key)
    )


@pytest.mark.parametrize("concurrency", SCHEDULES)
@pytest.mark.parametrize("calls", [FILE_CALLS, SOCKET_CALLS], ids=["files", "sockets"])
def test_a_kill_at_any_system_call_sends_nothing_twice(
    concurrency: int, calls: tuple[str, ...], tmp_path: Path, count: Callable[[str, int], None], *, full: bool
) -> None:
    points = _points(tmp_path, concurrency, calls)
    assert len(points) > 50
    killed = unknown = 0
    chosen = points if full else points[concurrency :: len(points) // SAMPLE][:SAMPLE]
    for index, (call, number) in enumerate(chosen):
        where = f"{call} number {number} at concurrency {concurrency}"
        with _window(concurrency) as window:
            context = window.context(tmp_path / str(index))
            strike = ("-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={number}")
            code, told = _run(window, context.folder, *strike)
            killed += code == -signal.SIGKILL
            assert _accepted(context) >= told, where
            assert collect(context) == "complete", where
            sent = window.sent
            assert collect(context) == "complete"
            assert (window.sent, window.most_sent) == (sent, 1), where
        records = list(scan(context.folder, context.binding, context.journal_key))
        kinds = Counter(record.kind for record in records)
        assert is_sealed(context.folder)
        assert kinds[RecordKind.ACCEPTED] == kinds[RecordKind.COMPLETE] == CALLS, where
        unknown_here = sum(map(is_unknown, records))
        assert unknown_here <= concurrency, where
        unknown += unknown_here
        shutil.rmtree(context.folder)
    count("kills at system calls of a real process of the runner", killed)
    count("calls settled as unknown after a kill of a real process", unknown)
    assert killed > 0
