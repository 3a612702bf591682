"""A reading that blocks in the kernel is left behind, once."""

from __future__ import annotations

import threading

from tasc_compute.devices.bounded import bounded
from tasc_compute.devices.finding import FaultCategory


def test_a_reading_within_its_bound_gives_its_answer() -> None:
    assert bounded("quick", lambda: 7, timeout_ms=60_000) == 7


def test_a_reading_that_breaks_is_unreadable() -> None:
    def broken() -> int:
        raise KeyError("x")

    assert bounded("broken", broken, timeout_ms=60_000) is FaultCategory.UNREADABLE


def test_a_blocked_reading_is_left_behind_and_not_begun_again_until_it_ended() -> None:
    release, ended, begun = threading.Event(), threading.Event(), []

    def blocked() -> int:
        begun.append(1)
        release.wait(60)
        ended.set()
        return 1

    assert bounded("disk", blocked, timeout_ms=20) is FaultCategory.TIMED_OUT
    assert bounded("disk", blocked, timeout_ms=20) is FaultCategory.WEDGED
    assert bounded("other", lambda: 2, timeout_ms=60_000) == 2
    assert len(begun) == 1
    release.set()
    assert ended.wait(60)
    thread = next((t for t in threading.enumerate() if t.name == "probe-disk"), None)
    if thread is not None:
        thread.join(60)
    assert bounded("disk", lambda: 3, timeout_ms=60_000) == 3
