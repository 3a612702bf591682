"""Choosing devices and ports: pure, and with what a device probe knows."""

from __future__ import annotations

import dataclasses

import pytest

from tasc_compute.contracts import NoCapacity
from tasc_compute.errors import LaunchFailed
from tasc_compute.instances import Held
from tasc_compute.lifecycle import launch, stop
from tasc_compute.reservations import ForeignUse, PortTaken, TooFewDevices, choose_devices, choose_port

FREE = Held({}, frozenset(), {}, ())


def order_for(make_order, devices=(), count=0, pool=(), *, unified=False, port=9000, exact=True):
    order = make_order(port=port)
    host = dataclasses.replace(order.request.host, unified_memory=unified)
    request = dataclasses.replace(order.request, devices=tuple(devices), host=host)
    return dataclasses.replace(order, request=request, device_count=count, device_pool=tuple(pool), exact_port=exact)


def test_devices_keep_the_callers_order(make_order):
    """Lesson 28: sorting visible devices loses what the user meant."""
    assert choose_devices(order_for(make_order, devices=("b", "a")), FREE) == ("b", "a")
    assert choose_devices(order_for(make_order, count=2, pool=("c", "b", "a")), FREE) == ("c", "b")


def test_no_devices_are_needed_where_none_are_asked_for(make_order):
    assert choose_devices(order_for(make_order, pool=("a",)), Held({"a": "x"}, frozenset(), {}, ("bad.json",))) == ()


@pytest.mark.parametrize(
    ("held", "unified", "devices", "free"),
    [
        (Held({"a": "x"}, frozenset(), {}, ()), False, ("a",), 0),
        (Held({"a": "x"}, frozenset(), {}, ()), False, ("a", "b"), 1),
        (Held({"a": "x"}, frozenset({"a"}), {}, ()), True, ("a",), 0),
        (Held({}, frozenset(), {}, ("bad.json",)), False, ("a",), 0),
    ],
)
def test_too_few_free_devices_are_counted(make_order, held, unified, devices, free):
    with pytest.raises(TooFewDevices) as caught:
        choose_devices(order_for(make_order, devices=devices, unified=unified), held)
    assert (caught.value.need, caught.value.free) == (len(devices), free)


def test_sharing_is_for_unified_memory_and_cpus_only(make_order):
    """Lesson 33: replicas on one GPU must not happen by accident."""
    held = Held({"metal:0": "x", "cpu:0": "x"}, frozenset(), {}, ())
    assert choose_devices(order_for(make_order, devices=("metal:0",), unified=True), held) == ("metal:0",)
    assert choose_devices(order_for(make_order, devices=("cpu:0",)), held) == ("cpu:0",)
    with pytest.raises(TooFewDevices):
        choose_devices(order_for(make_order, devices=("metal:0",)), held)


def test_an_exact_port_is_taken_or_refused(make_order):
    order = order_for(make_order)
    assert choose_port(order, FREE, lambda _: True, lambda _: None) == 9000
    with pytest.raises(PortTaken, match="port 9000 belongs to x -> tasc engines stop x"):
        choose_port(order, Held({}, frozenset(), {9000: "x"}, ()), lambda _: True, lambda _: None)
    with pytest.raises(PortTaken, match=r"port 9000 is busy \(pid 7\)"):
        choose_port(order, FREE, lambda _: False, lambda _: 7)


def test_a_searched_port_skips_held_and_busy_ones(make_order):
    order = order_for(make_order, exact=False)
    held = Held({}, frozenset(), {9000: "x"}, ())
    assert choose_port(order, held, lambda port: port != 9001, lambda _: None) == 9002
    with pytest.raises(PortTaken, match="no free port from 65535 on"):
        choose_port(order_for(make_order, port=65535, exact=False), FREE, lambda _: False, lambda _: None)


class Probe:
    """A device probe whose answers follow each other; the last one stays."""

    def __init__(self, *answers: tuple[ForeignUse, ...]) -> None:
        self.answers = list(answers)

    def foreign_uses(self, devices: object) -> tuple[ForeignUse, ...]:
        del devices
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


class QuickClock:
    """Waits cost nothing: each advances the time by itself."""

    def __init__(self, clock: object) -> None:
        self.clock, self.ms = clock, 0.0

    def now(self) -> object:
        return self.clock.now()  # type: ignore[attr-defined]  # a real clock

    def monotonic_ms(self) -> float:
        return self.ms

    def sleep_ms(self, duration_ms: float) -> None:
        self.ms += duration_ms


USE = ForeignUse("GPU-a", 4711, "python3", 2048)


def test_a_device_that_a_foreign_process_uses_is_refused_with_pid_and_memory(compute, make_order):
    """Lesson 31: free by lease is not free by fact."""
    busy = dataclasses.replace(compute, facts=Probe((USE,)), clock=QuickClock(compute.clock))
    with pytest.raises(LaunchFailed) as caught:
        launch(order_for(make_order, devices=("GPU-a",)), busy)
    assert caught.value.failure == NoCapacity(1, 0)
    assert caught.value.detail == (
        "GPU-a is used by pid 4711 (python3), 2048 MB -> end that process, or name it in the recipe's "
        "allow_foreign_processes"
    )
    assert compute.store.names() == ()


def test_a_foreign_process_that_was_allowed_by_name_does_not_hinder(compute, make_order, free_port):
    busy = dataclasses.replace(compute, facts=Probe((USE,)))
    order = dataclasses.replace(
        order_for(make_order, devices=("GPU-a",), port=free_port()), foreign_allowed=frozenset({"python3"})
    )
    assert launch(order, busy).devices == ("GPU-a",)
    stop("one", busy)


def test_memory_that_comes_back_late_is_waited_for(compute, make_order, free_port):
    """Lesson 35: the memory of an engine that just ended is still counted for seconds."""
    clock = QuickClock(compute.clock)
    busy = dataclasses.replace(compute, facts=Probe((USE,), (USE,), ()), clock=clock)
    launch(order_for(make_order, devices=("GPU-a",), port=free_port()), busy)
    assert clock.ms == 1000
    stop("one", compute)
