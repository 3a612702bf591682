"""What every real engine must survive, the same for llama.cpp b10156 and MLX-LM 0.31.3: busy port, bad flag, a killed
leader, a stop, and twenty of each.

MLX-LM takes some seconds of CPU to start, so its twenty cycles are most of this file's time.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tasc_compute import health
from tasc_compute.contracts import (
    EngineRuntimeKind,
    ExitedEarly,
    HandleReference,
    InstanceState,
    ProcessReference,
    SpawnFailed,
)
from tasc_compute.errors import LaunchFailed
from tasc_compute.launchers.base import Start, StopOutcome
from tasc_compute.launchers.process import ProcessLauncher
from tasc_compute.launchers.proctable import LinuxProcessTable
from tasc_compute.lifecycle import launch, observe, stop, supervise
from tasc_compute.local import local_order
from tasc_compute.recipes import Recipe
from tests.support.live_engines import failed_launch, leader, living, llama_recipe, mlx_recipe, needs_llama, needs_mlx

pytestmark = pytest.mark.live


@dataclass(frozen=True, slots=True)
class Engine:
    """One real engine, and how it says what went wrong.

    Args:
        recipe: of an instance of a name, on whatever port is free.
        bind_s: seconds after which it has tried to bind.
        port_taken: what it writes when it cannot bind.
        port_taken_kind: the launch's failure then.
        flag_exit: exit code of a flag that it does not know.
        flag_refused: what it writes then.
    """

    recipe: Callable[[str], Recipe]
    bind_s: int
    port_taken: str
    port_taken_kind: str
    flag_exit: int
    flag_refused: str


@pytest.fixture(params=[pytest.param("llama.cpp", marks=needs_llama), pytest.param("mlx-lm", marks=needs_mlx)])
def engine(request: pytest.FixtureRequest, home: Path) -> Engine:
    """Each engine in turn; MLX-LM's model is made only where its turn comes."""
    if request.param == "llama.cpp":
        return Engine(
            lambda name: dataclasses.replace(llama_recipe(), name=name, port=None),
            60,
            "couldn't bind HTTP server socket",
            "exited-early",
            1,
            "error: invalid argument: --no-such-flag",
        )
    model = request.getfixturevalue("mlx_model")
    (home / "huggingface" / "hub").mkdir(parents=True)
    return Engine(
        lambda name: dataclasses.replace(mlx_recipe(model, home), name=name),
        30,
        "Address already in use",
        "unhealthy-timeout",
        2,
        "mlx_lm.server: error: unrecognized arguments: --no-such-flag",
    )


def descriptors() -> list[str]:
    return sorted(path.name for path in Path("/proc/self/fd").iterdir())


def children() -> set[int]:
    """Processes whose parent we are, dead ones that nobody reaped included."""
    return {row.pid for row in LinuxProcessTable().rows() if row.parent == os.getpid()}


class LateStranger(ProcessLauncher):
    """Listens on the port between its reservation and the engine's start, as a stranger who wins the race for it."""

    listener: socket.socket | None = None

    def start(self, start: Start, record: Callable[[HandleReference], None]) -> ProcessReference:
        """Listen, then start."""
        self.close()
        self.listener = socket.create_server(("127.0.0.1", start.plan.ports[0].host))
        return super().start(start, record)

    def close(self) -> None:
        """Give the port back."""
        if self.listener is not None:
            self.listener.close()


def test_a_busy_port_is_refused_before_anything_starts(engine, compute, home):
    """Lessons 18 and 19, on the real engine: the holder is named, be it an instance or a stranger."""
    first = launch(local_order(engine.recipe("first"), home), compute)
    same_port = dataclasses.replace(engine.recipe("second"), port=first.port)
    with pytest.raises(LaunchFailed) as caught:
        launch(local_order(same_port, home), compute)
    assert caught.value.failure == SpawnFailed(f"port {first.port} belongs to first -> tasc engines stop first")
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        with pytest.raises(LaunchFailed) as caught:
            launch(local_order(dataclasses.replace(same_port, port=port), home), compute)
    assert caught.value.failure == SpawnFailed(
        f"port {port} is busy (pid {os.getpid()}) -> stop what listens there, or change the recipe's port"
    )
    assert compute.store.names() == ("first",)


def test_a_port_that_is_taken_after_its_reservation_is_never_ready_and_the_engine_says_why(engine, compute, home):
    """Lesson 21: what is free when it is looked at may not be when the engine binds it.

    llama.cpp ends. MLX-LM's main thread ends, and the one that generates goes on: only the deadline tells.
    """
    stranger = LateStranger(compute.clock, LinuxProcessTable(), os.environ, compute.store.members)
    raced = dataclasses.replace(compute, launchers={EngineRuntimeKind.PROCESS: stranger})
    order = local_order(dataclasses.replace(engine.recipe("late"), ready_deadline_s=engine.bind_s), home)
    failure = failed_launch(order, raced, engine.port_taken)
    stranger.close()
    assert engine.port_taken in failure.log_tail
    assert failure.kind == engine.port_taken_kind
    assert compute.store.names() == ()


def test_a_bad_flag_is_exited_early_with_the_engines_words(engine, compute, home):
    recipe = dataclasses.replace(engine.recipe("flag"), extra_args=("--no-such-flag",))
    failure = failed_launch(local_order(recipe, home), compute, engine.flag_refused)
    assert engine.flag_refused in failure.log_tail
    assert isinstance(failure, ExitedEarly)
    assert (failure.exit_code, failure.signal) == (engine.flag_exit, None)


def test_a_killed_leader_is_seen_and_its_lease_given_back(engine, compute, home):
    """Lessons 8, 10 and 14, on the real engine: a zombie is dead, and nothing of its group is left."""
    record = launch(local_order(engine.recipe("killed"), home), compute)
    known = supervise(compute).observations
    assert known["killed"].state is InstanceState.READY
    pid = leader(record)
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # it is dead and a zombie: nobody has reaped it
    assert observe(record, compute) is InstanceState.EXITED
    changes = supervise(compute, known).changes
    assert [(change.before, change.after) for change in changes] == [(InstanceState.READY, InstanceState.EXITED)]
    assert compute.store.names() == ()
    assert living(pid) == []
    assert pid not in children()
    assert health.port_is_free(record.port)


def test_twenty_cycles_leak_nothing(engine, compute, home):
    """No descriptor, process (asked by group, zombies included), file, lease or port is left of a launch and stop."""
    order = local_order(engine.recipe("cycle"), home)
    launch(order, compute)
    assert stop(order.name, compute) is StopOutcome.STOPPED
    before, others = (descriptors(), sorted(home.rglob("*"))), children()
    for _ in range(20):
        record = launch(order, compute)
        assert observe(record, compute) is InstanceState.READY
        assert stop(order.name, compute) is StopOutcome.STOPPED
        assert living(leader(record)) == []
        assert health.port_is_free(record.port)
        assert compute.store.names() == ()
    assert (descriptors(), sorted(home.rglob("*"))) == before
    assert children() - others == set()
