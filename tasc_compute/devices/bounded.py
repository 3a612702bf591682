"""Reading files of drivers and disks without waiting for ever.

A read below /sys or a look at a file system can block in the kernel when a device is lost, and nothing ends a thread
that does. So it runs in a thread of its own that is waited for within a bound and then left behind; while it is still
there, the same reading is not begun again, so that threads cannot pile up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, TypeVar

from tasc_compute.devices.finding import FaultCategory

T = TypeVar("T")

_LEFT_BEHIND: Final[dict[str, threading.Thread]] = {}
_LOCK: Final = threading.Lock()


def bounded(key: str, call: Callable[[], T], *, timeout_ms: float) -> T | FaultCategory:
    """What ``call`` returns, or why there is nothing.

    Args:
        key: names the reading; one of a name runs at a time.
        call: the reading. It may raise: then its answer was unreadable.
        timeout_ms: longest wait.
    """
    with _LOCK:
        if key in _LEFT_BEHIND and _LEFT_BEHIND[key].is_alive():
            return FaultCategory.WEDGED
        _LEFT_BEHIND.pop(key, None)
    answers: list[T | FaultCategory] = []

    def run() -> None:
        try:
            answers.append(call())
        except Exception:  # noqa: BLE001  # boundary: whatever a host's files hold becomes the fault "unreadable"
            answers.append(FaultCategory.UNREADABLE)

    thread = threading.Thread(target=run, name=f"probe-{key}", daemon=True)
    thread.start()
    thread.join(timeout_ms / 1000)
    if thread.is_alive():
        with _LOCK:
            _LEFT_BEHIND[key] = thread
        return FaultCategory.TIMED_OUT
    return answers[0]
