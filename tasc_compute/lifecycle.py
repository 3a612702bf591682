"""Launching, watching and stopping engines. The only module that makes a ``LaunchFailure``.

A launch, in this order; a failure at any step undoes the ones before it:

1. Refuse what the host, the engine or the recipe forbids (``unsupported``).
2. Find the executable or pull the image (``install-failed``). Nothing is held meanwhile.
3. Settle reservations of dead makers, then reserve name, devices and port (``already-running``, ``no-capacity``; a
   busy fixed port is ``spawn-failed`` and names its holder).
4. Wait for another start on the same shared device: two engines that profile memory at once mis-size it.
5. Start: inert, recorded, then let run (``spawn-failed``).
6. Ask until ready, each time in the order *cancelled, dead, ready, late*: an engine that ran out of memory is
   ``exited-early`` with its log's tail, never a time-out, and an exit with code 0 before readiness is early, too.
   Ready needs an answer *and* that our own process listens on the port.
7. On failure stop what was started. The record goes only when the stop is proved; otherwise it stays, and with it the
   lease.

A stop is the same ladder. ``supervise`` looks at every record, reports changes, and removes records of engines that
are gone. It never makes an engine generate: only a launch may ask for a token, of the engine that it starts, and an engine
whose launcher died before that proof is never called ready.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

from tasc_compute import health
from tasc_compute.clock import Clock
from tasc_compute.contracts import (
    AlreadyRunning,
    Cancelled,
    EngineRuntimeKind,
    ExitedEarly,
    HandleReference,
    InstallFailed,
    InstanceRecord,
    InstanceState,
    LaunchPlan,
    LaunchRequest,
    NoCapacity,
    PinnedReference,
    RemoteReference,
    SpawnFailed,
    UnhealthyTimeout,
    Unsupported,
)
from tasc_compute.engines import engine
from tasc_compute.errors import LaunchFailed, RecipeError, StoreError
from tasc_compute.instances import InstanceStore, LaunchGuard
from tasc_compute.launchers.base import ExitStatus, InstallError, Launcher, SpawnError, Start, StopOutcome
from tasc_compute.limits import HEALTH_MISSES, LOG_TAIL_BYTES, SHARED_START_WAIT_MS
from tasc_compute.planning import plan_launch, refusals
from tasc_compute.redaction import redact, secrets_of
from tasc_compute.reservations import (
    DeviceFacts,
    LaunchOrder,
    NameTaken,
    NoDeviceFacts,
    PortTaken,
    TooFewDevices,
    recover,
    reserve,
)
from tasc_compute.state import Liveness, deadline, state_of
from tasc_compute.visibility import container_devices

_FIRST_WAIT_MS: Final = 100
"""First wait between two readiness checks; it doubles up to the engine's interval. llama.cpp is ready in a second."""


@dataclass(frozen=True, slots=True)
class Compute:
    """The effects that the functions of this module use.

    Args:
        store: instance records.
        launchers: one per way to run an engine that this installation has. A record of another way (docker, without its
            extra) is of unknown liveness, so that its lease is kept.
        clock: wall and monotonic time.
        log_folder: where process output goes, one file per instance.
        facts: what a device probe knows.
        listener: the process that listens on a port, as far as it can be seen.
        remote: liveness of another node's instance; unknown where nobody can ask.
    """

    store: InstanceStore
    launchers: Mapping[EngineRuntimeKind, Launcher]
    clock: Clock
    log_folder: Path
    facts: DeviceFacts = field(default_factory=NoDeviceFacts)
    listener: Callable[[int], int | None] = lambda _: None
    remote: Callable[[RemoteReference], Liveness] = lambda _: Liveness.UNKNOWN

    def liveness(self, record: InstanceRecord) -> Liveness:
        """Whether an instance lives, by whoever can tell; a reservation's maker is not asked (``maker_lives``)."""
        if isinstance(record.ref, PinnedReference):
            return Liveness.ALIVE
        if isinstance(record.ref, RemoteReference):
            return self.remote(record.ref)
        launcher = self.launchers.get(record.runtime)
        if launcher is None:
            return Liveness.UNKNOWN
        return Liveness.GONE if record.ref is None else launcher.liveness(record)

    def log_path(self, name: str) -> Path:
        """The log file of an instance."""
        return self.log_folder / f"{name}.log"


# --- launch -----------------------------------------------------------------------------------------------------------


def launch(order: LaunchOrder, compute: Compute, *, cancel: threading.Event | None = None) -> InstanceRecord:
    """Launch an engine and wait until it is ready.

    Args:
        order: what to launch.
        compute: the effects.
        cancel: set it to give up; the engine is then stopped.

    Raises:
        LaunchFailed: with the contract's failure; ``record_kept`` says that something could not be proved gone.
        StoreError: the instance folder cannot be used.
    """
    cancel = cancel or threading.Event()
    spec = engine(order.request.engine)
    launcher = compute.launchers.get(order.request.runtime)
    _refuse(order, order.request)
    if launcher is None:
        reason = f"this installation cannot launch {order.request.runtime}; install the extra docker"
        raise LaunchFailed(Unsupported(spec.id, reason))
    try:
        installed = launcher.install(plan_launch(order.request, order.places))
    except InstallError as error:
        raise LaunchFailed(InstallFailed(spec.id, str(error))) from None
    recover(compute.store, compute.launchers)
    record, guard = _reserve(order, compute, cancel)
    attempt = _Attempt(order, compute, launcher, installed, cancel, guard, record)
    try:
        return attempt.run()
    finally:
        guard.release()


def _refuse(order: LaunchOrder, request: LaunchRequest) -> None:
    reasons = refusals(request, order.places, logs_content=order.logs_content)
    if reasons:
        raise LaunchFailed(Unsupported(request.engine, "; ".join(reasons)))


def _reserve(order: LaunchOrder, compute: Compute, cancel: threading.Event) -> tuple[InstanceRecord, LaunchGuard]:
    spec = engine(order.request.engine)
    try:
        return reserve(
            order,
            uuid.uuid4().hex,
            store=compute.store,
            liveness=compute.liveness,
            clock=compute.clock,
            facts=compute.facts,
            listener=compute.listener,
            ready_deadline_ms=order.ready_deadline_ms or spec.health.ready_deadline_ms,
            cancel=cancel,
        )
    except NameTaken as error:
        raise LaunchFailed(AlreadyRunning(order.name), detail=str(error)) from None
    except TooFewDevices as error:
        raise LaunchFailed(NoCapacity(error.need, error.free), detail=str(error)) from None
    except PortTaken as error:
        raise LaunchFailed(SpawnFailed(str(error))) from None
    except StoreError:
        if cancel.is_set():
            raise LaunchFailed(Cancelled()) from None
        raise


@dataclass(slots=True)
class _Attempt:
    """One launch from its reservation on."""

    order: LaunchOrder
    compute: Compute
    launcher: Launcher
    installed: LaunchPlan
    cancel: threading.Event
    guard: LaunchGuard
    record: InstanceRecord

    def run(self) -> InstanceRecord:
        """Start and wait; undo on any failure, an interrupt included."""
        request = dataclasses.replace(self.order.request, devices=self.record.devices, port=self.record.port)
        try:
            _refuse(self.order, request)
            with self._turn():
                plan = self._plan(request)
                self._start(plan, request)
                self._await_ready(plan, request)
        except LaunchFailed as failure:
            raise LaunchFailed(failure.failure, detail=failure.detail, record_kept=not self._undo()) from None
        except BaseException:
            self._undo()
            raise
        return self.record

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Step 4."""
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(self.compute.store.starting(self.record.devices, SHARED_START_WAIT_MS, self.cancel))
            except StoreError as error:
                if self.cancel.is_set():
                    raise LaunchFailed(Cancelled()) from None
                raise LaunchFailed(SpawnFailed(str(error))) from None
            yield

    def _plan(self, request: LaunchRequest) -> LaunchPlan:
        """The plan for the devices and port that were given, with the executable that was found."""
        plan = plan_launch(request, self.order.places)
        argv = (self.installed.argv[0], *plan.argv[1:]) if plan.kind is EngineRuntimeKind.PROCESS else plan.argv
        budget_ms = self.order.ready_deadline_ms or plan.health.ready_deadline_ms
        check = dataclasses.replace(plan.health, ready_deadline_ms=budget_ms)
        return dataclasses.replace(plan, argv=argv, health=check, image=self.installed.image)

    def _start(self, plan: LaunchPlan, request: LaunchRequest) -> None:
        """Step 5."""
        if self.cancel.is_set():
            raise LaunchFailed(Cancelled())
        devices = container_devices(plan.devices, request.host.accelerator, self.order.places)
        start = Start(self.record.name, self.record.nonce, plan, devices, self.compute.log_path(self.record.name))
        try:
            self.launcher.start(start, self._record_reference)
        except SpawnError as error:
            raise LaunchFailed(SpawnFailed(str(error))) from None

    def _record_reference(self, reference: HandleReference) -> None:
        budget_ms = self.order.ready_deadline_ms or engine(self.record.engine).health.ready_deadline_ms
        ready_by = deadline(self.compute.clock.now(), budget_ms)
        found = dataclasses.replace(self.record, ref=reference, ready_deadline_at=ready_by)
        self.compute.store.write(found)
        self.record = found

    def _await_ready(self, plan: LaunchPlan, request: LaunchRequest) -> None:
        """Step 6."""
        spec = engine(request.engine)
        served = request.served_model_name if spec.probes.lists_served_name else None
        started = self.compute.clock.monotonic_ms()
        wait_ms = min(_FIRST_WAIT_MS, plan.health.interval_ms)
        while True:
            if self.cancel.is_set():
                raise LaunchFailed(Cancelled())
            self._check_alive(plan)
            left_ms = plan.health.ready_deadline_ms - (self.compute.clock.monotonic_ms() - started)
            ready = health.is_ready(
                self.record.port,
                plan.health.path,
                spec.probes,
                served,
                left_ms=max(left_ms, 1),
                give_up=self.cancel.is_set,
            )
            if ready and self.launcher.owns_port(self.record) is not False:
                self.compute.store.latch(self.record)
                self.compute.store.remember(self.record, self.launcher.remember(self.record))
                return
            waited = self.compute.clock.monotonic_ms() - started
            if waited >= plan.health.ready_deadline_ms:
                self._check_alive(plan)
                raise LaunchFailed(UnhealthyTimeout(int(waited), self._tail(plan)))
            self.cancel.wait(min(wait_ms, plan.health.ready_deadline_ms - waited) / 1000)
            wait_ms = min(2 * wait_ms, plan.health.interval_ms)

    def _check_alive(self, plan: LaunchPlan) -> None:
        """An engine is gone when nothing of it lives, or when its leader is known to have ended."""
        ended = self.launcher.exit_status(self.record)
        known = ended.exit_code is not None or ended.signal is not None
        if known or self.launcher.liveness(self.record) is Liveness.GONE:
            ended = self.launcher.exit_status(self.record)
            raise LaunchFailed(ExitedEarly(ended.exit_code, ended.signal, self._tail(plan)), detail=_cause(ended))

    def _tail(self, plan: LaunchPlan) -> str:
        path = self.compute.log_path(self.record.name)
        return redact(self.launcher.log_tail(self.record, path, LOG_TAIL_BYTES), secrets_of(plan))

    def _undo(self) -> bool:
        """Step 7: stop what was started and give the lease back; false if it could not be proved gone."""
        if self.record.ref is not None:
            outcome = self.launcher.stop(self.record, engine(self.record.engine).stop_grace_ms)
            if not outcome.proved:
                return False
        try:
            self.compute.store.remove(self.record)
        except StoreError:
            return False
        return True


def _cause(ended: ExitStatus) -> str | None:
    if ended.out_of_memory:
        return "the container was ended for want of memory"
    if ended.signal == "SIGKILL":
        return "SIGKILL without our doing is mostly the system's out-of-memory killer"
    return None


# --- stop -------------------------------------------------------------------------------------------------------------


def check_known(name: str, compute: Compute) -> None:
    """Refuse a name that no instance has or had; one that is gone has left its log and may be stopped again.

    Raises:
        RecipeError: there is no record and no log of it; says which instances there are.
    """
    held = compute.store.names()
    if name not in held and name not in {path.stem for path in compute.log_folder.glob("*.log")}:
        known = f"known: {', '.join(held)}" if held else "none is recorded"
        raise RecipeError(
            f"there is no such instance and no log of one ({known})", where=name, way_out="tasc engines list"
        )


def stop(name: str, compute: Compute, *, grace_ms: int | None = None) -> StopOutcome:
    """Stop an instance and give its lease back.

    Args:
        name: the instance.
        compute: the effects.
        grace_ms: time between SIGTERM and SIGKILL; the engine's own where it is ``None``.

    Returns:
        How it ended. The record is gone if and only if the outcome is ``proved``.

    Raises:
        StoreError: the record is damaged, or a hold that only its holder releases.
    """
    record = compute.store.read(name)
    if record is None:
        return StopOutcome.ABSENT
    if isinstance(record.ref, PinnedReference):
        raise StoreError(
            "is a hold without a process", where=name, way_out=f"its holder ({record.ref.holder}) must release it"
        )
    if isinstance(record.ref, RemoteReference):
        return StopOutcome.UNREACHABLE
    if record.ref is None:
        if compute.store.maker_lives(name):
            return StopOutcome.NOT_PROVED
        recover(compute.store, compute.launchers)
        record = compute.store.read(name)
        if record is None:
            return StopOutcome.ABSENT
    grace = engine(record.engine).stop_grace_ms if grace_ms is None else grace_ms
    launcher = compute.launchers.get(record.runtime)
    if launcher is None:
        return StopOutcome.UNREACHABLE
    outcome = launcher.stop(record, grace)
    if outcome.proved:
        compute.store.remove(record)
    return outcome


# --- watch ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Observation:
    """What was last said about an instance.

    Args:
        nonce: which instance of that name.
        state: the state that was reported.
        misses: consecutive looks in which a ready instance failed its check.
    """

    nonce: str
    state: InstanceState
    misses: int = 0


@dataclass(frozen=True, slots=True)
class StateChange:
    """An instance's state is another than at the last look; ``before`` is ``None`` at the first."""

    name: str
    before: InstanceState | None
    after: InstanceState
    at: datetime


@dataclass(frozen=True, slots=True)
class Supervision:
    """The result of one look: what to report, and what to hand to the next look."""

    changes: tuple[StateChange, ...]
    observations: Mapping[str, Observation]
    unreadable: tuple[str, ...]


def supervise(compute: Compute, known: Mapping[str, Observation] | None = None, *, reap: bool = True) -> Supervision:
    """Look at every instance once.

    Args:
        compute: the effects.
        known: the observations of the last look; a caller keeps them (a sensor's cursor).
        reap: remove records of engines that are gone.
    """
    known = known or {}
    recover(compute.store, compute.launchers)
    changes: list[StateChange] = []
    observations: dict[str, Observation] = {}
    records, unreadable = compute.store.all()
    for record in records:
        before = known.get(record.name)
        if before is not None and before.nonce != record.nonce:
            before = None
        now = compute.clock.now()
        observation = _debounced(before, observe(record, compute), record.nonce)
        if before is None or before.state is not observation.state:
            changes.append(StateChange(record.name, before.state if before else None, observation.state, now))
        if observation.state is InstanceState.EXITED and reap:
            compute.store.remove(record)
            continue
        observations[record.name] = observation
    for name in sorted(set(known) - {record.name for record in records}):
        if known[name].state is not InstanceState.EXITED:
            changes.append(StateChange(name, known[name].state, InstanceState.EXITED, compute.clock.now()))
    return Supervision(tuple(changes), observations, unreadable)


def _debounced(before: Observation | None, state: InstanceState, nonce: str) -> Observation:
    """A ready engine that misses a check is busy until it missed several in a row."""
    failed = state in (InstanceState.STARTING, InstanceState.UNHEALTHY)
    if before is None or before.state is not InstanceState.READY or not failed:
        return Observation(nonce, state)
    misses = before.misses + 1
    if misses < HEALTH_MISSES:
        return Observation(nonce, InstanceState.READY, misses)
    return Observation(nonce, state, misses)


def observe(record: InstanceRecord, compute: Compute) -> InstanceState:
    """The state of one instance now; nothing is asked that makes the engine work."""
    liveness = compute.liveness(record)
    local = record.ref is not None and not isinstance(record.ref, PinnedReference | RemoteReference)
    healthy = local and liveness is not Liveness.GONE and _is_healthy(record, compute)
    return state_of(record, liveness, healthy=healthy, now=compute.clock.now())


def _is_healthy(record: InstanceRecord, compute: Compute) -> bool:
    spec = engine(record.engine)
    launcher = compute.launchers.get(record.runtime)
    if launcher is None or launcher.owns_port(record) is False:
        return False
    if spec.probes.generative and not compute.store.latched(record):
        return False  # its passive answer proves nothing until it once completed a token
    if not health.is_alive(record.port, spec.probes):
        return False
    compute.store.remember(record, launcher.remember(record))
    return True
