"""Launch, stop and supervise with real processes: a fake engine does each thing that engines do."""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
import threading
from pathlib import Path

import pytest

from tasc_compute import health
from tasc_compute.clock import SystemClock
from tasc_compute.contracts import (
    AlreadyRunning,
    Cancelled,
    DockerReference,
    EngineId,
    EngineRuntimeKind,
    ExitedEarly,
    InstallFailed,
    InstanceState,
    LaunchFailure,
    NoCapacity,
    ProcessReference,
    SpawnFailed,
    UnhealthyTimeout,
    Unsupported,
)
from tasc_compute.engines import ENGINES
from tasc_compute.errors import LaunchFailed, StoreError
from tasc_compute.launchers.base import StopOutcome
from tasc_compute.launchers.process import ProcessLauncher
from tasc_compute.launchers.proctable import LinuxProcessTable, ProcessInfo
from tasc_compute.lifecycle import Compute, Observation, Supervision, launch, observe, stop, supervise
from tasc_compute.reservations import ForeignUse, pin, recover, release
from tasc_compute.state import Liveness
from tests.support.processes import wait_until


def failure_of(compute: Compute, order: object, cancel: threading.Event | None = None) -> LaunchFailure:
    with pytest.raises(LaunchFailed) as caught:
        launch(order, compute, cancel=cancel)  # type: ignore[arg-type]  # an order from the fixture
    return caught.value.failure


def living_group(pid: int) -> list[int]:
    return [row.pid for row in LinuxProcessTable().rows() if row.group == pid and not row.dead]


def pid_of(record: object) -> int:
    reference = getattr(record, "ref")  # noqa: B009  # a record of any kind
    assert isinstance(reference, ProcessReference)
    return reference.pid


class Devices:
    """A device probe with a fixed answer."""

    def __init__(self, *uses: ForeignUse) -> None:
        self.uses = uses

    def foreign_uses(self, devices: object) -> tuple[ForeignUse, ...]:
        del devices
        return self.uses


def test_a_launched_engine_is_ready_recorded_and_leaves_nothing_after_its_stop(compute, make_order):
    order = make_order(ready_after=2)
    record = launch(order, compute)
    assert observe(record, compute) is InstanceState.READY
    assert compute.store.read("one") == record
    assert health.context_per_request(record.port) == 4096  # 2048 for each of two slots
    pid = pid_of(record)
    assert living_group(pid) == [pid]
    assert stop("one", compute) is StopOutcome.STOPPED
    assert living_group(pid) == []
    assert compute.store.names() == ()
    assert sorted(path.name for path in compute.store.folder.iterdir()) == ["placement.lock"]
    assert health.port_is_free(order.request.port)


def test_twenty_cycles_leak_no_descriptor_process_or_file(compute, make_order):
    """Lessons 8 and 14: ended children are reaped, a zombie is dead."""
    launch(make_order(), compute)
    stop("one", compute)
    before = sorted(path.name for path in Path("/proc/self/fd").iterdir())
    for _ in range(20):
        pid = pid_of(launch(make_order(), compute))
        assert stop("one", compute) is StopOutcome.STOPPED
        assert LinuxProcessTable().read(pid) is None
    assert sorted(path.name for path in Path("/proc/self/fd").iterdir()) == before
    assert [path.name for path in compute.store.folder.iterdir()] == ["placement.lock"]


def test_an_exit_code_before_readiness_is_exited_early_with_the_log_tail(compute, make_order):
    """Lessons 36 and 37: a crash at start is no time-out, and its log is kept."""
    failure = failure_of(compute, make_order(exit_code=7, print="loading\nerror: bad model\n"))
    assert failure == ExitedEarly(7, None, "loading\nerror: bad model\n")
    assert compute.store.names() == ()


def test_exit_code_zero_before_readiness_is_exited_early_too(compute, make_order):
    failure = failure_of(compute, make_order(ready_after=100, exit_after=1))
    assert isinstance(failure, ExitedEarly)
    assert (failure.exit_code, failure.signal) == (0, None)


def test_out_of_memory_reads_as_sigkill_with_the_tail(compute, make_order):
    """Lesson 36: liveness is asked before the deadline."""
    order = dataclasses.replace(make_order(kill_self="SIGKILL", print="CUDA out of memory\n"), ready_deadline_ms=60_000)
    failure = failure_of(compute, order)
    assert failure == ExitedEarly(None, "SIGKILL", "CUDA out of memory\n")


def test_an_engine_that_lives_but_never_answers_is_an_unhealthy_timeout_and_is_stopped(compute, make_order):
    """Lesson 42: the deadline is the engine's own, and failure is not sticky: the name is free again."""
    slow = make_order(never_ready=True, print="still loading\n")
    order = dataclasses.replace(slow, ready_deadline_ms=3_000)  # enough to start and print on a busy machine
    failure = failure_of(compute, order)
    assert isinstance(failure, UnhealthyTimeout)
    assert 3_000 <= failure.waited_ms < 15_000
    assert failure.log_tail == "still loading\n"
    assert compute.store.names() == ()
    launch(make_order(), compute)
    assert stop("one", compute) is StopOutcome.STOPPED


def test_cancel_while_starting_stops_the_engine(compute, make_order, tmp_path):
    cancel = threading.Event()
    pid_file = tmp_path / "pid"
    order = make_order(never_ready=True, worker="group", worker_pid_file=str(pid_file))
    failures: list[LaunchFailure] = []
    thread = threading.Thread(target=lambda: failures.append(failure_of(compute, order, cancel)))
    thread.start()
    while not (pid_file.exists() and pid_file.read_text()):
        thread.join(0.02)
        assert thread.is_alive()
    cancel.set()
    thread.join(30)
    assert failures == [Cancelled()]
    assert compute.store.names() == ()
    row = LinuxProcessTable().read(int(pid_file.read_text()))
    assert row is None or row.dead


def test_a_missing_executable_is_install_failed_and_reserves_nothing(compute, make_order):
    order = make_order()
    order = dataclasses.replace(order, request=dataclasses.replace(order.request, binary="/nowhere/llama-server"))
    failure = failure_of(compute, order)
    assert isinstance(failure, InstallFailed)
    assert failure.detail == (
        "llama-server: executable not found or not executable -> install the engine, or name its binary"
    )
    assert list(compute.store.folder.iterdir()) == []


def test_a_file_that_the_system_cannot_execute_is_spawn_failed(compute, make_order, tmp_path):
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF not really")
    broken.chmod(0o700)
    order = make_order()
    order = dataclasses.replace(order, request=dataclasses.replace(order.request, binary=str(broken)))
    failure = failure_of(compute, order)
    assert isinstance(failure, SpawnFailed)
    assert failure.detail == "broken: cannot be executed: ENOEXEC, Exec format error"
    assert compute.store.names() == ()


def test_a_second_launch_of_a_name_is_already_running(compute, make_order):
    launch(make_order(), compute)
    assert failure_of(compute, make_order()) == AlreadyRunning("one")
    stop("one", compute)


def test_an_unsupported_host_is_refused_with_the_reason(compute, make_order):
    order = make_order(engine=EngineId.SGLANG)
    failure = failure_of(compute, order)
    assert failure == Unsupported(EngineId.SGLANG, "SGLang is launched on CUDA hosts; this one computes with cpu")


def test_a_flag_that_logs_content_is_refused_unless_the_recipe_says_so(compute, make_order, tmp_path):
    order = make_order()
    request = dataclasses.replace(order.request, extra_args=("--log-prompts-dir", str(tmp_path)))
    order = dataclasses.replace(order, request=request)
    failure = failure_of(compute, order)
    assert isinstance(failure, Unsupported)
    assert failure.reason.startswith("--log-prompts-dir writes prompts or answers to disk")
    launch(dataclasses.replace(order, logs_content=True), compute)
    assert stop("one", compute) is StopOutcome.STOPPED


def test_a_fixed_port_of_another_instance_is_refused_naming_the_holder(compute, make_order):
    """Lesson 19: ports are part of the lease."""
    first = launch(make_order(), compute)
    failure = failure_of(compute, make_order("two", port=first.port))
    assert failure == SpawnFailed(f"port {first.port} belongs to one -> tasc engines stop one")
    stop("one", compute)


def test_a_fixed_port_of_a_foreign_process_is_refused_naming_the_pid(compute, make_order):
    """Lessons 18 and 21: no second server waits silently for a port or loses a race for it."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        failure = failure_of(compute, make_order(port=port))
    assert failure == SpawnFailed(
        f"port {port} is busy (pid {os.getpid()}) -> stop what listens there, or change the recipe's port"
    )


def test_an_inexact_port_moves_past_held_and_busy_ones(compute, make_order):
    """Lesson 22: what is free comes from live records, so a stale reservation blocks no port."""
    first = launch(make_order(), compute)
    order = dataclasses.replace(make_order("two", port=first.port), exact_port=False)
    second = launch(order, compute)
    assert second.port > first.port
    stop("one", compute)
    stop("two", compute)


def test_an_engine_that_moved_to_another_port_is_never_ready(compute, make_order):
    """Lesson 20, and TabbyAPI's silent port + 1: only the recorded port counts."""
    order = dataclasses.replace(make_order(port_offset=1), ready_deadline_ms=3_000)
    assert isinstance(failure_of(compute, order), UnhealthyTimeout)


def test_an_answer_of_another_process_is_not_readiness(compute, make_order):
    """Lesson 18: a healthy answer may come from someone else's server."""
    other = launch(make_order("other"), compute)
    record = launch(make_order(), compute)
    moved = dataclasses.replace(record, port=other.port)
    assert health.is_alive(moved.port, ENGINES[record.engine].probes)
    assert observe(moved, compute) is InstanceState.STARTING
    stop("one", compute)
    stop("other", compute)


def test_another_served_name_is_not_ready(compute, make_order):
    order = dataclasses.replace(make_order(serves_name="other"), ready_deadline_ms=3_000)
    assert isinstance(failure_of(compute, order), UnhealthyTimeout)


def test_a_redirect_is_not_ready(compute, make_order):
    order = dataclasses.replace(make_order(redirect=True), ready_deadline_ms=3_000)
    assert isinstance(failure_of(compute, order), UnhealthyTimeout)


def test_mlx_is_ready_only_after_a_completed_token_and_is_asked_for_one_once(compute, make_order, tmp_path):
    """Lesson 41: constant endpoints prove nothing; readiness is latched on one completion."""
    count = tmp_path / "count"
    order = make_order(engine=EngineId.MLX, completion_status=500, count_file=str(count))
    order = dataclasses.replace(order, ready_deadline_ms=6_000)
    assert isinstance(failure_of(compute, order), UnhealthyTimeout)
    count.unlink()
    record = launch(make_order(engine=EngineId.MLX, count_file=str(count)), compute)
    for _ in range(3):
        assert supervise(compute).observations["one"].state is InstanceState.READY
    assert count.read_text() == "1\n"
    assert compute.store.latched(record)
    stop("one", compute)


def test_a_worker_that_outlives_its_leader_keeps_the_lease_until_stopped(compute, make_order, tmp_path):
    """Lessons 1, 4, 7, 10, 11 and 12: liveness and stop are of the group, never of the leader alone."""
    pid_file = tmp_path / "pid"
    record = launch(make_order(worker="group", worker_pid_file=str(pid_file)), compute)
    os.kill(pid_of(record), signal.SIGKILL)
    worker = int(pid_file.read_text())
    assert compute.liveness(record) is Liveness.ALIVE
    assert failure_of(compute, make_order()) == AlreadyRunning("one")
    assert stop("one", compute) is StopOutcome.STOPPED
    row = LinuxProcessTable().read(worker)
    assert row is None or row.dead


def test_a_worker_that_wiped_its_environment_is_proved_by_what_was_written_down(compute, make_order, tmp_path):
    """Processes that rewrite their title lose the nonce (vLLM's EngineCore, SGLang's scheduler)."""
    pid_file = tmp_path / "pid"
    record = launch(make_order(worker="wiped", worker_pid_file=str(pid_file)), compute)
    os.kill(pid_of(record), signal.SIGKILL)
    os.waitpid(pid_of(record), 0)
    worker = int(pid_file.read_text())
    assert LinuxProcessTable().marker(worker, "TASC_INSTANCE_NONCE") is None
    assert stop("one", compute) is StopOutcome.STOPPED
    row = LinuxProcessTable().read(worker)
    assert row is None or row.dead


def test_a_group_that_cannot_be_proved_is_never_signalled_and_keeps_its_lease(compute, make_order, tmp_path):
    """Lesson 16: a pid file that matches an unrelated process must not kill it."""
    pid_file = tmp_path / "pid"
    record = launch(make_order(worker="wiped", worker_pid_file=str(pid_file)), compute)
    os.kill(pid_of(record), signal.SIGKILL)
    os.waitpid(pid_of(record), 0)
    (compute.store.folder / "one.members").unlink()
    assert compute.liveness(record) is Liveness.UNKNOWN
    assert stop("one", compute) is StopOutcome.NOT_PROVED
    worker = int(pid_file.read_text())
    assert LinuxProcessTable().read(worker) is not None
    assert compute.store.names() == ("one",)
    os.kill(worker, signal.SIGKILL)


def test_a_worker_in_another_session_is_stopped_with_its_parent(compute, make_order, tmp_path):
    pid_file = tmp_path / "pid"
    launch(make_order(worker="session", worker_pid_file=str(pid_file)), compute)
    assert stop("one", compute) is StopOutcome.STOPPED
    row = LinuxProcessTable().read(int(pid_file.read_text()))
    assert row is None or row.dead


def test_an_engine_that_ignores_term_is_killed_after_the_grace(compute, make_order, tmp_path):
    """Lessons 2, 5 and 6: the ladder escalates, and the grace can be set."""
    pid_file = tmp_path / "pid"
    record = launch(make_order(ignore_term=True, worker="group", worker_pid_file=str(pid_file)), compute)
    assert stop("one", compute, grace_ms=200) is StopOutcome.STOPPED
    assert living_group(pid_of(record)) == []


class StuckTable(LinuxProcessTable):
    """A process table in which one process never dies, as one that sits in a driver."""

    def __init__(self, stuck: ProcessInfo) -> None:
        super().__init__()
        self.stuck = stuck

    def read(self, pid: int) -> ProcessInfo | None:
        return self.stuck if pid == self.stuck.pid else super().read(pid)

    def rows(self) -> tuple[ProcessInfo, ...]:
        return (*(row for row in super().rows() if row.pid != self.stuck.pid), self.stuck)


class QuickClock(SystemClock):
    """Waits cost nothing: each advances the monotonic time by twenty times itself."""

    ms = 0.0

    def monotonic_ms(self) -> float:
        return self.ms

    def sleep_ms(self, duration_ms: float) -> None:
        self.ms += 20 * duration_ms


def test_a_process_that_outlives_sigkill_keeps_its_lease(compute, make_order):
    """Lesson 15: a driver can hold a process until the next boot; its device is not free."""
    record = launch(make_order(), compute)
    stuck = LinuxProcessTable().read(pid_of(record))
    assert stuck is not None
    launcher = ProcessLauncher(QuickClock(), StuckTable(stuck), {})
    held = dataclasses.replace(compute, launchers={EngineRuntimeKind.PROCESS: launcher})
    assert stop("one", held) is StopOutcome.SURVIVED
    assert compute.store.names() == ("one",)
    assert held.store.held(held.liveness).ports == {record.port: "one"}
    assert stop("one", compute) is StopOutcome.ABSENT


def test_an_engine_that_lives_but_lost_its_device_is_unhealthy_and_keeps_its_lease(compute, make_order, tmp_path):
    """Lesson 26: an engine whose GPU vanished goes on running; liveness alone would call it well."""
    node = tmp_path / "nvidia0"
    node.touch()
    order = dataclasses.replace(make_order(device_node=str(node)), device_count=1, device_pool=("GPU-a",))
    record = launch(order, compute)
    compute.store.write(dataclasses.replace(record, ready_deadline_at="2020-01-01T00:00:00.000Z"))
    known = supervise(compute).observations
    assert known["one"].state is InstanceState.READY
    node.unlink()
    for _ in range(3):
        known = supervise(compute, known).observations
    assert compute.liveness(record) is Liveness.ALIVE
    assert known["one"].state is InstanceState.UNHEALTHY
    assert failure_of(compute, dataclasses.replace(order, name="two")) == NoCapacity(1, 0)
    node.touch()
    assert supervise(compute, known).observations["one"].state is InstanceState.READY
    stop("one", compute)


def test_an_engine_that_hangs_is_unhealthy_though_it_lives(compute, make_order):
    record = launch(make_order(), compute)
    os.kill(pid_of(record), signal.SIGSTOP)
    late = dataclasses.replace(record, ready_deadline_at="2020-01-01T00:00:00.000Z")
    assert compute.liveness(late) is Liveness.ALIVE
    assert observe(late, compute) is InstanceState.UNHEALTHY
    os.kill(pid_of(record), signal.SIGCONT)
    stop("one", compute)


def test_a_stop_of_nothing_is_absent(compute):
    assert stop("one", compute) is StopOutcome.ABSENT


def test_an_engine_killed_from_outside_is_reported_and_its_lease_given_back(compute, make_order):
    record = launch(make_order(), compute)
    known = supervise(compute).observations
    assert {name: item.state for name, item in known.items()} == {"one": InstanceState.READY}
    os.kill(pid_of(record), signal.SIGKILL)
    looked: list[Supervision] = []

    def changed() -> bool:
        looked.append(supervise(compute, known))
        return bool(looked[-1].changes)

    wait_until(changed)
    result = looked[-1]
    assert [(c.name, c.before, c.after) for c in result.changes] == [("one", InstanceState.READY, InstanceState.EXITED)]
    assert compute.store.names() == ()


def test_a_busy_engine_is_unhealthy_only_after_three_misses(compute, make_order):
    """Lesson 40: a busy engine misses a check without being dead."""
    record = launch(make_order(), compute)
    late = dataclasses.replace(record, ready_deadline_at="2020-01-01T00:00:00.000Z")
    compute.store.write(late)
    known = supervise(compute).observations
    os.kill(pid_of(record), signal.SIGSTOP)
    seen = []
    for _ in range(3):
        known = supervise(compute, known).observations
        seen.append((known["one"].state, known["one"].misses))
    os.kill(pid_of(record), signal.SIGCONT)
    assert seen == [(InstanceState.READY, 1), (InstanceState.READY, 2), (InstanceState.UNHEALTHY, 3)]
    changes = supervise(compute, known).changes
    assert [(c.before, c.after) for c in changes] == [(InstanceState.UNHEALTHY, InstanceState.READY)]
    stop("one", compute)


def test_ready_after_the_deadline_is_ready(compute, make_order):
    record = launch(make_order(), compute)
    late = dataclasses.replace(record, ready_deadline_at="2020-01-01T00:00:00.000Z")
    assert observe(late, compute) is InstanceState.READY
    stop("one", compute)


def test_secrets_are_taken_out_of_the_tail(compute, make_order):
    order = make_order(exit_code=1, print="key=hunter2-value\nAuthorization: Bearer abc.def\nhf_abcdefgh1234\n")
    env = {**order.request.env, "MY_API_KEY": "hunter2-value"}
    order = dataclasses.replace(order, request=dataclasses.replace(order.request, env=env))
    failure = failure_of(compute, order)
    assert isinstance(failure, ExitedEarly)
    assert failure.log_tail == "key=[redacted]\nAuthorization: Bearer [redacted]\n[redacted]\n"


def test_the_environment_of_an_engine_is_chosen_not_inherited(compute, make_order, monkeypatch):
    """LLAMA_ARG_*, CUDA_VISIBLE_DEVICES and proxies of ours would change the plan."""
    monkeypatch.setenv("LLAMA_ARG_CTX_SIZE", "256")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    record = launch(make_order(), compute)
    names = {item.split(b"=")[0] for item in Path(f"/proc/{pid_of(record)}/environ").read_bytes().split(b"\0") if item}
    assert names <= {
        b"PATH",
        b"HOME",
        b"USER",
        b"LOGNAME",
        b"LANG",
        b"LC_ALL",
        b"TZ",
        b"TMPDIR",
        b"FAKE_ENGINE",
        b"TASC_INSTANCE_NONCE",
    }
    assert b"TASC_INSTANCE_NONCE" in names
    stop("one", compute)


def test_devices_are_exclusive_and_the_refusal_counts(compute, make_order):
    """Lessons 30, 31 and 34: devices are chosen inside the lock, and only what a record claims is held."""
    pool = ("GPU-a", "GPU-b")
    order = dataclasses.replace(make_order("one"), device_count=1, device_pool=pool)
    first = launch(order, compute)
    second = launch(dataclasses.replace(make_order("two"), device_count=1, device_pool=pool), compute)
    assert (first.devices, second.devices) == (("GPU-a",), ("GPU-b",))
    third = dataclasses.replace(make_order("three"), device_count=1, device_pool=pool)
    assert failure_of(compute, third) == NoCapacity(1, 0)
    stop("one", compute)
    assert launch(third, compute).devices == ("GPU-a",)
    stop("two", compute)
    stop("three", compute)


def test_a_pinned_hold_is_respected_and_freed_only_by_its_holder(compute, make_order):
    pin("speech", "speech-worker", ("GPU-a",), "n", engine=EngineId.VLLM, store=compute.store,
        liveness=compute.liveness, clock=compute.clock)  # fmt: skip
    order = dataclasses.replace(make_order(), device_count=1, device_pool=("GPU-a",))
    assert failure_of(compute, order) == NoCapacity(1, 0)
    assert supervise(compute).observations["speech"].state is InstanceState.READY
    with pytest.raises(StoreError, match="must release it"):
        stop("speech", compute)
    with pytest.raises(StoreError, match="belongs to another holder"):
        release("speech", "someone", store=compute.store)
    release("speech", "speech-worker", store=compute.store)
    assert compute.store.names() == ()


def test_a_damaged_record_counts_as_held(compute, make_order):
    (compute.store.folder / "lost.json").write_text("{")
    order = dataclasses.replace(make_order(), device_count=1, device_pool=("GPU-a",))
    assert failure_of(compute, order) == NoCapacity(1, 0)
    assert supervise(compute).unreadable == ("lost.json",)
    launch(make_order("nodevice"), compute)  # what needs no device is not hindered
    stop("nodevice", compute)


def test_the_observation_of_an_older_instance_of_the_name_is_not_carried_over(compute, make_order):
    record = launch(make_order(), compute)
    old = {"one": Observation("another-nonce", InstanceState.UNHEALTHY)}
    assert supervise(compute, old).changes[0].before is None
    assert record.nonce != "another-nonce"
    stop("one", compute)


def test_the_launcher_of_a_kind_that_is_not_installed_is_unsupported(compute, make_order):
    order = make_order()
    host = dataclasses.replace(order.request.host, docker=True)
    request = dataclasses.replace(order.request, runtime=EngineRuntimeKind.DOCKER, host=host)
    failure = failure_of(compute, dataclasses.replace(order, request=request))
    assert isinstance(failure, Unsupported)
    assert failure.reason == "this installation cannot launch docker; install the extra docker"


@pytest.mark.parametrize("reference", [DockerReference("c" * 64), None], ids=["container", "dead-makers-reservation"])
def test_a_docker_record_keeps_its_lease_where_the_docker_extra_is_missing(compute, make_order, reference):
    """Another installation made it in the same state folder; here nobody can say whether its container lives."""
    order = make_order("other")
    with_device = dataclasses.replace(order, device_count=1, device_pool=("GPU-a",))
    launched = launch(with_device, compute)
    held = dataclasses.replace(
        launched, name="box", ref=reference, runtime=EngineRuntimeKind.DOCKER, nonce="b", port=launched.port + 1
    )
    assert stop("other", compute) is StopOutcome.STOPPED
    compute.store.write(held)
    assert recover(compute.store, compute.launchers) == ()
    assert compute.liveness(held) is Liveness.UNKNOWN
    assert compute.store.held(compute.liveness).devices == {"GPU-a": "box"}
    assert failure_of(compute, with_device) == NoCapacity(1, 0)
    assert isinstance(failure_of(compute, make_order("box")), AlreadyRunning)
    state = InstanceState.STARTING if reference else InstanceState.RESERVING
    assert supervise(compute).observations["box"].state is state
    assert stop("box", compute) is StopOutcome.UNREACHABLE
    assert compute.store.read("box") == held


def test_a_callers_interrupt_stops_the_engine(compute, make_order, tmp_path, monkeypatch):
    def interrupt(*_: object, **__: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(health, "is_ready", interrupt)
    with pytest.raises(KeyboardInterrupt):
        launch(make_order(), compute)
    assert compute.store.names() == ()


def test_a_long_log_is_cut_to_whole_lines(compute, make_order):
    failure = failure_of(compute, make_order(exit_code=1, print="x" * 200 + "\n" + ("line\n" * 800) + "last\n"))
    assert isinstance(failure, ExitedEarly)
    assert failure.log_tail.startswith("line\n")
    assert failure.log_tail.endswith("line\nlast\n")
    assert 4000 < len(failure.log_tail) <= 4096
