"""Waits with a bound: for the first line of a child process, for a condition, for a port.

A test that hangs costs its whole run. So no test waits for a process, a thread or a condition without a limit
(``tests/architecture/test_bounds.py``); the limits are far above what anything takes and say nothing about speed.
"""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import AnyStr

PATIENCE_S = 240.0
"""How long a test waits for another process before it fails."""


@contextmanager
def killed_after(process: subprocess.Popen[AnyStr], limit_s: float = PATIENCE_S) -> Iterator[None]:
    """Kill a process that is still there after a while, so that no read of its pipes waits for ever."""
    watchdog = threading.Timer(limit_s, process.kill)
    watchdog.start()
    try:
        yield
    finally:
        watchdog.cancel()
        watchdog.join(PATIENCE_S)


def next_line(process: subprocess.Popen[AnyStr]) -> AnyStr:
    """The next line that a process writes; nothing where it ended, or had to be killed because it wrote none."""
    assert process.stdout is not None
    with killed_after(process):
        return process.stdout.readline()


def wait_until(condition: Callable[[], bool], pause_s: float = 0.05) -> None:
    """Watch another process through what it says or writes; nothing tells us when it has."""
    end, pause = time.monotonic() + PATIENCE_S, threading.Event()
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("it did not happen in time")
        pause.wait(pause_s)


def free_port() -> int:
    """A port on loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
