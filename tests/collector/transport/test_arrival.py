"""Kernel times on the monotonic clock: mapped, bounded, and refused where the wall clock was set."""

from __future__ import annotations

import asyncio
import socket
import struct

import pytest

from tasc_collector.runtimes.result import Arrival
from tasc_collector.transport.addresses import Address
from tasc_collector.transport.arrival import ArrivalClock
from tasc_collector.transport.clock import SystemClock
from tasc_collector.transport.loop_turns import watched_turns
from tasc_collector.transport.network import SO_TIMESTAMPNS, SystemNetwork
from tests.support.calls import Call, call
from tests.support.raw_server import Peer, RawServer, answer

MS = 1_000_000
WALL = 1_800_000_000_000_000_000


class Hands:
    """Clocks that stand still until they are moved; reading the monotonic one may take time."""

    def __init__(self, *, slow_ns: int = 0) -> None:
        self.mono, self.offset, self.slow_ns = 1_000 * MS, WALL, slow_ns

    def now_ns(self) -> int:
        self.mono += self.slow_ns
        return self.mono

    def wall_ns(self) -> int:
        return self.mono + self.offset


def stamp(wall_ns: int) -> list[tuple[int, int, bytes]]:
    assert SO_TIMESTAMPNS is not None
    return [(socket.SOL_SOCKET, SO_TIMESTAMPNS, struct.pack("@ll", *divmod(wall_ns, 1_000_000_000)))]


kernel = pytest.mark.skipif(SO_TIMESTAMPNS is None, reason="the system gives no kernel receive times on TCP")


@kernel
def test_a_stamp_is_mapped_and_the_lag_is_what_the_reader_was_late() -> None:
    hands = Hands()
    stamps = ArrivalClock(hands, origin_ns=900 * MS)
    assert stamps.arrival(stamp(WALL + 1_010 * MS), 1_025 * MS) == Arrival(110 * MS, 0, 15 * MS)
    assert stamps.last_ns == 1_010 * MS


@kernel
@pytest.mark.parametrize("wall_ns", [WALL + 990 * MS, WALL + 1_030 * MS, WALL + 3_600_000 * MS, WALL - 3_600_000 * MS])
def test_a_stamp_outside_the_possible_interval_is_not_believed(wall_ns: int) -> None:
    stamps = ArrivalClock(Hands())
    assert stamps.arrival(stamp(wall_ns), 1_025 * MS) == Arrival(1_025 * MS, None, None)


@kernel
def test_a_stamp_that_seems_a_little_newer_than_the_read_is_the_reads_time() -> None:
    stamps = ArrivalClock(Hands())
    assert stamps.arrival(stamp(WALL + 1_020 * MS + 40_000), 1_020 * MS) == Arrival(1_020 * MS, 0, 0)


@kernel
def test_arrivals_never_go_back() -> None:
    stamps = ArrivalClock(Hands())
    stamps.arrival(stamp(WALL + 1_010 * MS), 1_020 * MS)
    assert stamps.arrival(stamp(WALL + 1_010 * MS - 30_000), 1_020 * MS).at_ns == 1_010 * MS


@kernel
def test_a_slow_measurement_of_the_clocks_is_told_as_uncertainty() -> None:
    stamps = ArrivalClock(Hands(slow_ns=8 * MS))
    found = stamps.arrival(stamp(WALL + 1_200 * MS), 1_300 * MS)
    assert found.uncertainty_ns == 4 * MS


@pytest.mark.parametrize(
    ("step_ns", "noticed"), [(0, False), (100_000, False), (5 * MS, True), (-5 * MS, True), (3_600_000 * MS, True)]
)
def test_a_set_wall_clock_is_noticed(step_ns: int, noticed: bool) -> None:
    hands = Hands()
    stamps = ArrivalClock(hands)
    hands.mono += 500 * MS
    hands.offset += step_ns
    assert stamps.wall_clock_was_set() is noticed


class Unstamped(SystemNetwork):
    """The machine's network without kernel times, as another system has it."""

    async def connect(self, address: Address, port: int) -> socket.socket:
        sock = await super().connect(address, port)
        if SO_TIMESTAMPNS is not None:
            sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 0)
        return sock


def script(peer: Peer) -> None:
    peer.read_request()
    peer.server.stopping.wait(0.05)
    peer.send(answer())
    peer.fin()


def test_without_kernel_times_the_lag_is_bounded_by_the_loops_turns() -> None:
    async def blocked(block_s: float) -> Call:
        async def block() -> None:
            await asyncio.sleep(0.03)
            until = asyncio.get_running_loop().time() + block_s
            while asyncio.get_running_loop().time() < until:
                pass

        blocker = asyncio.create_task(block())
        done = await call(server.origin, network=Unstamped())
        await blocker
        return done

    with RawServer(script) as server:
        late = asyncio.run(blocked(0.1))
    (arrival,) = late.arrivals
    assert arrival.uncertainty_ns is None
    assert arrival.lag_ns is not None
    assert arrival.lag_ns > 70 * MS


def test_beats_stop_when_nobody_uses_them() -> None:
    async def go() -> tuple[int, int]:
        clock = SystemClock()
        with watched_turns(clock) as turns:
            with watched_turns(clock) as again:
                assert again is turns
            await asyncio.sleep(0.02)
            seen = turns.before_last_ns
        await asyncio.sleep(0.01)
        return seen, turns.before_last_ns

    seen, later = asyncio.run(go())
    assert 0 < seen == later
