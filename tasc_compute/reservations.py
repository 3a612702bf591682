"""Taking and giving back leases: which name, devices and port a launch gets, decided inside the placement lock.

``choose_devices`` and ``choose_port`` are pure; ``reserve``, ``pin``, ``release`` and ``recover`` apply them to a
store.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tasc_compute.clock import Clock
from tasc_compute.contracts import (
    DeviceId,
    EngineId,
    EngineRuntimeKind,
    InstanceRecord,
    LaunchRequest,
    PinnedReference,
)
from tasc_compute.errors import ComputeError, StoreError
from tasc_compute.health import port_is_free
from tasc_compute.instances import Held, InstanceStore, LaunchGuard, check_name
from tasc_compute.launchers.base import Launcher
from tasc_compute.limits import DEVICE_SETTLE_MS, DEVICE_SETTLE_POLL_MS, MAX_PORT, PORT_SCAN
from tasc_compute.state import Liveness, deadline, format_time
from tasc_compute.visibility import DevicePlace

LivenessOf = Callable[[InstanceRecord], Liveness]


class NameTaken(ComputeError):
    """A live record has the name."""


class TooFewDevices(ComputeError):
    """Fewer devices are free than needed; ``need`` and ``free`` are counts."""

    def __init__(self, what: str, *, need: int, free: int, way_out: str) -> None:
        super().__init__(what, way_out=way_out)
        self.need, self.free = need, free


class PortTaken(ComputeError):
    """The port is held; the message says by whom."""


@dataclass(frozen=True, slots=True)
class ForeignUse:
    """A process that is none of ours uses a device.

    Args:
        device: the device.
        pid: the process.
        process: its name.
        memory_mb: device memory that it uses, or ``None`` if this cannot be told.
    """

    device: DeviceId
    pid: int
    process: str
    memory_mb: int | None


class DeviceFacts(Protocol):
    """What a device probe knows beyond leases."""

    def foreign_uses(self, devices: Sequence[DeviceId]) -> Sequence[ForeignUse]:
        """Processes that use these devices now."""


class NoDeviceFacts:
    """No probe: nothing is known about foreign use."""

    def foreign_uses(self, devices: Sequence[DeviceId]) -> Sequence[ForeignUse]:
        """Nothing."""
        del devices
        return ()


@dataclass(frozen=True, slots=True)
class LaunchOrder:
    """A launch as it is asked for.

    Args:
        name: instance name.
        recipe_id: which recipe it comes from.
        request: what to launch; its ``devices`` are exactly these, or empty to choose ``device_count`` from the pool.
        device_count: how many devices to choose where the request names none.
        device_pool: devices to choose from, in order of preference.
        exact_port: take the request's port or fail; otherwise it is where the search begins.
        logs_content: the engine may write prompts and answers to disk.
        foreign_allowed: names of processes that may use the devices beside us.
        places: ordinal and device files of each device during this boot.
        ready_deadline_ms: another cold-start budget than the engine's.
    """

    name: str
    recipe_id: str
    request: LaunchRequest
    device_count: int = 0
    device_pool: tuple[DeviceId, ...] = ()
    exact_port: bool = True
    logs_content: bool = False
    foreign_allowed: frozenset[str] = frozenset()
    places: Mapping[DeviceId, DevicePlace] = dataclasses.field(default_factory=dict)
    ready_deadline_ms: int | None = None


def choose_devices(order: LaunchOrder, held: Held) -> tuple[DeviceId, ...]:
    """The devices that a launch gets, in the caller's order.

    Raises:
        TooFewDevices: not enough of them are free.
    """
    wanted = order.request.devices
    need = len(wanted) or order.device_count
    if not need:
        return ()
    if held.unreadable:
        raise TooFewDevices(
            f"{held.unreadable[0]} is damaged and may be a live lease, so no device counts as free",
            need=need,
            free=0,
            way_out="make sure that its engine is gone, then remove the file from the instance folder",
        )
    unified = order.request.host.unified_memory
    free = [device for device in (wanted or order.device_pool) if _is_free(device, held, unified=unified)]
    if len(free) < need:
        holders = sorted({held.devices[d] for d in (wanted or order.device_pool) if d in held.devices})
        raise TooFewDevices(
            f"devices are held by {', '.join(holders)}" if holders else "the host has too few devices",
            need=need,
            free=len(free),
            way_out=f"tasc engines stop {holders[0]}" if holders else "name another host or fewer devices",
        )
    return tuple(free) if wanted else tuple(free[:need])


def _is_free(device: DeviceId, held: Held, *, unified: bool) -> bool:
    if device in held.pinned:
        return False
    return device not in held.devices or unified or device.startswith("cpu:")


def choose_port(
    order: LaunchOrder, held: Held, is_free: Callable[[int], bool], listener: Callable[[int], int | None]
) -> int:
    """The port that a launch gets.

    Args:
        order: the launch.
        held: what is taken.
        is_free: whether a server could listen on a port.
        listener: the process that does, as far as it can be seen.

    Raises:
        PortTaken: the exact port is held, or the search found none.
    """
    first = order.request.port
    if order.exact_port:
        if first in held.ports:
            raise PortTaken(
                f"port {first} belongs to {held.ports[first]}", way_out=f"tasc engines stop {held.ports[first]}"
            )
        if not is_free(first):
            pid = listener(first)
            raise PortTaken(
                f"port {first} is busy{f' (pid {pid})' if pid else ''}",
                way_out="stop what listens there, or change the recipe's port",
            )
        return first
    for port in range(first, min(first + PORT_SCAN, MAX_PORT + 1)):
        if port not in held.ports and is_free(port):
            return port
    raise PortTaken(f"no free port from {first} on", way_out="change the recipe's port")


def reserve(
    order: LaunchOrder,
    nonce: str,
    *,
    store: InstanceStore,
    liveness: LivenessOf,
    clock: Clock,
    facts: DeviceFacts,
    listener: Callable[[int], int | None],
    ready_deadline_ms: int,
    cancel: threading.Event | None = None,
) -> tuple[InstanceRecord, LaunchGuard]:
    """Write a reservation for a launch, or refuse. A foreign process may leave a device within ``DEVICE_SETTLE_MS``.

    Args:
        order: what is to be launched.
        nonce: random text that the engine's environment will carry, by which it is found again.
        store: the instance records; its lock is held while devices and port are chosen.
        liveness: says of a record whether its engine lives.
        clock: for the wait and the record's instants.
        facts: which devices foreign processes use.
        listener: process id of whoever listens on a port of this host, or None.
        ready_deadline_ms: time from now until the engine must answer its health check.
        cancel: set by an interrupt; ends the waits for lock and devices.

    Returns:
        The record, and the guard that holds its devices until the launch is over.

    Raises:
        NameTaken: a live record has the name.
        TooFewDevices: devices are held, or used by foreign processes.
        PortTaken: the port is not to be had.
        StoreError: the folder cannot be locked, read or written.
    """
    check_name(order.name)
    end = clock.monotonic_ms() + DEVICE_SETTLE_MS
    while True:
        with store.locked(cancel):
            current = store.read(order.name)
            if current is not None and store.is_live(current, liveness):
                raise NameTaken(
                    "an instance of this name lives", where=order.name, way_out=f"tasc engines stop {order.name}"
                )
            held = store.held(liveness)
            devices = choose_devices(order, held)
            port = choose_port(order, held, port_is_free, listener)
            foreign = (
                [u for u in facts.foreign_uses(devices) if u.process not in order.foreign_allowed] if devices else []
            )
            if not foreign:
                if current is not None:
                    store.remove(current)
                return _write_reservation(order, nonce, devices, port, store, clock, ready_deadline_ms)
        # memory of an engine that just ended comes back after seconds, so a foreign use is looked at again
        if clock.monotonic_ms() >= end or (cancel is not None and cancel.is_set()):
            raise _foreign(foreign, len(devices))
        clock.sleep_ms(DEVICE_SETTLE_POLL_MS)


def _foreign(uses: Sequence[ForeignUse], need: int) -> TooFewDevices:
    listed = "; ".join(
        f"{u.device} is used by pid {u.pid} ({u.process}), {'unknown' if u.memory_mb is None else u.memory_mb} MB"
        for u in uses
    )
    free = need - len({use.device for use in uses})
    return TooFewDevices(
        listed, need=need, free=free, way_out="end that process, or name it in the recipe's allow_foreign_processes"
    )


def _write_reservation(
    order: LaunchOrder,
    nonce: str,
    devices: tuple[DeviceId, ...],
    port: int,
    store: InstanceStore,
    clock: Clock,
    ready_deadline_ms: int,
) -> tuple[InstanceRecord, LaunchGuard]:
    guard = store.guard(order.name)
    if guard is None:
        raise NameTaken("a launch of this name is under way", where=order.name, way_out="wait for it")
    now = clock.now()
    record = InstanceRecord(
        name=order.name,
        node_id=order.request.host.node_id,
        engine=order.request.engine,
        recipe_id=order.recipe_id,
        runtime=order.request.runtime,
        ref=None,
        port=port,
        devices=devices,
        nonce=nonce,
        started_at=format_time(now),
        ready_deadline_at=deadline(now, ready_deadline_ms),
    )
    try:
        store.write(record)
    except BaseException:
        guard.release()
        raise
    return record, guard


def pin(
    name: str,
    holder: str,
    devices: tuple[DeviceId, ...],
    nonce: str,
    *,
    engine: EngineId,
    store: InstanceStore,
    liveness: LivenessOf,
    clock: Clock,
) -> InstanceRecord:
    """Hold devices for something that we do not supervise, until the same holder releases them.

    Args:
        name: of the record.
        holder: who holds them; only the same one may release.
        devices: which.
        nonce: random text that tells this record from a later one of the same name.
        engine: what uses them, for whoever lists.
        store: the instance records; its lock is held meanwhile.
        liveness: says of a record whether its engine lives.
        clock: for the record's instants.

    Raises:
        NameTaken: a live record has the name.
        TooFewDevices: a device is held.
    """
    with store.locked():
        current = store.read(check_name(name))
        if current is not None and store.is_live(current, liveness):
            raise NameTaken("an instance of this name lives", where=name, way_out=f"tasc engines stop {name}")
        held = store.held(liveness)
        taken = [device for device in devices if device in held.devices]
        if taken or held.unreadable:
            raise TooFewDevices(
                f"{', '.join(taken) or held.unreadable[0]} is held",
                need=len(devices),
                free=0 if held.unreadable else len(devices) - len(taken),
                way_out="tasc engines list",
            )
        now = format_time(clock.now())
        record = InstanceRecord(
            name=name,
            node_id="self",
            engine=engine,
            recipe_id=name,
            runtime=EngineRuntimeKind.PROCESS,
            ref=PinnedReference(holder),
            port=0,
            devices=devices,
            nonce=nonce,
            started_at=now,
            ready_deadline_at=now,
        )
        store.write(record)
        return record


def release(name: str, holder: str, *, store: InstanceStore) -> None:
    """Give a pinned hold back.

    Raises:
        StoreError: there is no such hold, or it is another holder's.
    """
    with store.locked():
        record = store.read(name)
        if record is None or not isinstance(record.ref, PinnedReference):
            raise StoreError("is no pinned hold", where=name, way_out="tasc engines list")
        if record.ref.holder != holder:
            raise StoreError("the hold belongs to another holder", where=name, way_out="ask that holder to release it")
        store.remove(record)


def recover(store: InstanceStore, launchers: Mapping[EngineRuntimeKind, Launcher]) -> tuple[InstanceRecord, ...]:
    """Settle reservations whose maker died: attach what it started, or drop them. One whose launcher this installation
    lacks is left as it is, since nobody can say whether its maker started something.

    Returns the records that it changed.
    """
    changed: list[InstanceRecord] = []
    with store.locked():
        store.sweep()
        for record in store.all()[0]:
            if record.ref is not None or store.maker_lives(record.name):
                continue
            launcher = launchers.get(record.runtime)
            if launcher is None:
                continue
            reference = launcher.find(record.nonce)
            if reference is None:
                store.remove(record)
                changed.append(record)
                continue
            found = dataclasses.replace(record, ref=reference)
            store.write(found)
            changed.append(found)
    return tuple(changed)
