"""Exclusive ownership under a race of processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.processes import next_line

PROGRAM = """
import pathlib, sys
from tasc_collector.errors import JournalLocked
from tasc_collector.journal import OsFileSystem, Owner
from tasc_collector.journal.lock import take_lock
for line in sys.stdin:
    try:
        descriptor, _ = take_lock(OsFileSystem(), pathlib.Path(line.strip()), Owner.current())
        print("owner", flush=True)
    except JournalLocked as error:
        print(error.what, flush=True)
"""
RACES = 50


def test_of_two_processes_exactly_one_owns_the_journal_and_the_other_says_who(tmp_path: Path) -> None:
    processes = [
        subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    try:
        for number in range(RACES):
            folder = tmp_path / str(number)
            folder.mkdir()
            for process in processes:
                assert process.stdin is not None
                process.stdin.write(f"{folder}\n")
                process.stdin.flush()
            answers = [next_line(process).strip() for process in processes]
            assert answers.count("owner") == 1
            winner = processes[answers.index("owner")].pid
            (loser,) = [answer for answer in answers if answer != "owner"]
            assert f"process {winner} " in loser or "another process" in loser
    finally:
        for process in processes:
            process.communicate(timeout=60)
