"""Engines as processes.

Rules:

1. An engine is the leader of a session and a group of its own; its reference is that leader's pid and start token, and
   its environment carries the record's nonce. It starts from a chosen base environment, never from all of ours.
2. A gate process holds its place until the reference is recorded (``gate.py``): whatever dies when, there is never a
   running engine without a record.
3. The instance lives while any process of its group lives, whoever leads: workers outlive a killed leader and keep the
   device (vLLM issue 55510). A zombie is dead.
4. A group is ours if its leader has the recorded token, or a member is proved: by the nonce in its environment, or by
   a pid and token that were written down while the leader was proved. Processes that rewrite their title lose the
   nonce, so it is never asked of every member. While one member is ours the kernel gives the group's number to nobody
   else.
5. Nothing that is not proved is signalled, and the proof is taken again before every signal. What is not proved counts
   as unknown and keeps its lease.
6. Stop: SIGTERM to the group, poll through the grace, SIGKILL, poll again, reap. Descendants in other sessions are
   collected before the first signal, as (pid, token) pairs, and signalled through a pidfd.
7. Our own children are reaped, and only then is an exit code or signal known. They belong to this Python process,
   whichever launcher object started them.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tasc_compute.clock import Clock
from tasc_compute.contracts import HandleReference, InstanceRecord, LaunchPlan, ProcessReference
from tasc_compute.launchers.base import ExitStatus, InstallError, SpawnError, Start, StopOutcome, tail_of_file
from tasc_compute.launchers.proctable import ProcessInfo, ProcessTable
from tasc_compute.limits import KILL_WAIT_MS, SPAWN_WAIT_MS, STOP_POLL_MS
from tasc_compute.state import Liveness

NONCE_VARIABLE: Final = "TASC_INSTANCE_NONCE"
"""Environment variable that marks an engine and all it starts."""

BASE_ENVIRONMENT: Final = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR")
"""What an engine inherits.

Everything else (CUDA_VISIBLE_DEVICES, LLAMA_ARG_*, VLLM_*, proxies ...) could change the plan.
"""

_GATE: Final = Path(__file__).with_name("gate.py")
_CHILDREN: Final[dict[int, subprocess.Popen[bytes]]] = {}
_ENDED: Final[dict[str, ExitStatus]] = {}
_REAPING: Final = threading.Lock()


class ProcessLauncher:
    """Starts, watches and stops engines as processes of this host.

    Args:
        clock: for the waits of a stop.
        table: the process table.
        environ: where the base environment is taken from; ours where it is ``None``.
        known: members written down earlier for an instance (pid to start token); see rule 4.
    """

    def __init__(
        self,
        clock: Clock,
        table: ProcessTable,
        environ: Mapping[str, str] | None = None,
        known: Callable[[InstanceRecord], Mapping[int, str]] = lambda _: {},
    ) -> None:
        self._clock, self._table, self._known = clock, table, known
        self._environ = os.environ if environ is None else environ

    # --- start --------------------------------------------------------------------------------------------------------

    def install(self, plan: LaunchPlan) -> LaunchPlan:
        """The plan with its executable as an absolute path.

        Raises:
            InstallError: there is no such executable.
        """
        name = plan.argv[0]
        path = plan.env.get("PATH", self._environ.get("PATH", os.defpath))
        found = shutil.which(name, path=path)
        if found is None:
            raise InstallError(
                "executable not found or not executable",
                where=Path(name).name,
                way_out="install the engine, or name its binary",
            )
        if plan.workdir is not None and not Path(plan.workdir).is_dir():
            raise InstallError(
                "working directory not found", where=Path(plan.workdir).name, way_out="check the recipe's binary"
            )
        return LaunchPlan(
            kind=plan.kind,
            argv=(str(Path(found).absolute()), *plan.argv[1:]),
            env=plan.env,
            ports=plan.ports,
            mounts=plan.mounts,
            devices=plan.devices,
            health=plan.health,
            image=plan.image,
            workdir=plan.workdir,
        )

    def start(self, start: Start, record: Callable[[HandleReference], None]) -> ProcessReference:
        """Start an engine behind a gate, record it, open the gate.

        Raises:
            SpawnError: it could not be started; nothing of it is left.
        """
        base = {name: self._environ[name] for name in BASE_ENVIRONMENT if name in self._environ}
        env = {**base, **start.plan.env, NONCE_VARIABLE: start.nonce}
        message = json.dumps({"argv": start.plan.argv, "env": env}).encode() + b"\n"
        go_read, go_write = os.pipe()
        report_read, report_write = os.pipe()
        try:
            try:
                child = self._spawn_gate(start, go_read, report_write)
            finally:
                os.close(go_read)
                os.close(report_write)
            _CHILDREN[child.pid] = child
            try:
                reference = self._reference(child.pid)
                record(reference)
                self._open_gate(go_write, message)
                failed = self._report(report_read, child)
            except BaseException:
                self._discard(child)
                raise
            if failed is not None:
                self._discard(child)
                raise SpawnError(f"cannot be executed: {failed}", where=Path(start.plan.argv[0]).name)
            return reference
        finally:
            os.close(report_read)
            with contextlib.suppress(OSError):
                os.close(go_write)

    def _reference(self, pid: int) -> ProcessReference:
        row = self._table.read(pid)
        if row is None:
            raise SpawnError("the process table does not show the new process", way_out="check that /proc is mounted")
        return ProcessReference(pid, row.token)

    def _spawn_gate(self, start: Start, go_read: int, report_write: int) -> subprocess.Popen[bytes]:
        try:
            log = os.open(start.log_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise SpawnError(f"the log file cannot be written ({error.strerror})", where=start.log_path.name) from None
        try:
            return subprocess.Popen(
                [sys.executable, "-I", "-S", str(_GATE), str(go_read), str(report_write)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={NONCE_VARIABLE: start.nonce},
                cwd=start.plan.workdir,
                start_new_session=True,
                pass_fds=(go_read, report_write),
            )
        except OSError as error:
            raise SpawnError(
                f"no new process ({error.strerror})", way_out="free memory or processes, then try again"
            ) from None
        finally:
            os.close(log)

    @staticmethod
    def _open_gate(go_write: int, message: bytes) -> None:
        view = memoryview(message)
        try:
            while view:
                view = view[os.write(go_write, view) :]
        except BrokenPipeError:
            raise SpawnError("the new process ended before it became the engine") from None

    def _report(self, report_read: int, child: subprocess.Popen[bytes]) -> str | None:
        """``None`` once the gate became the engine, else the system's reason why it could not."""
        ready, _, _ = select.select([report_read], [], [], SPAWN_WAIT_MS / 1000)
        if not ready:
            return "the gate did not answer in time"
        data = os.read(report_read, 16)
        if data:
            code = int(data)
            return f"{errno.errorcode.get(code, str(code))}, {os.strerror(code)}"
        return None

    def _discard(self, child: subprocess.Popen[bytes]) -> None:
        """Kill and reap a child that is not yet an engine: it is ours by birth and cannot have children."""
        child.kill()
        child.wait()
        _CHILDREN.pop(child.pid, None)

    # --- proofs -------------------------------------------------------------------------------------------------------

    def _members(self, record: InstanceRecord) -> tuple[tuple[ProcessInfo, ...], bool]:
        """Living members of the record's group, and whether the group is proved to be ours (rule 4)."""
        reference = record.ref
        if not isinstance(reference, ProcessReference):
            return (), False
        self._reap(record)
        rows = [row for row in self._table.rows() if row.group == reference.pid and row.session == reference.pid]
        leader = next((row for row in rows if row.pid == reference.pid), None)
        living = tuple(row for row in rows if not row.dead)
        if leader is not None:
            if leader.dead:
                self._reap(record)
            return living, reference.start_token is not None and leader.token == reference.start_token
        known = self._known(record)
        proved = any(
            known.get(row.pid) == row.token or self._table.marker(row.pid, NONCE_VARIABLE) == record.nonce
            for row in living
        )
        return living, proved

    def liveness(self, record: InstanceRecord) -> Liveness:
        """Whether any process of the instance lives; unknown where a group exists that cannot be proved."""
        reference = record.ref
        if not isinstance(reference, ProcessReference):
            return Liveness.UNKNOWN
        self._reap(record)
        leader = self._table.read(reference.pid)
        if leader is not None and not leader.dead and leader.token == reference.start_token:
            return Liveness.ALIVE  # the usual case, without a look at every process of the host
        living, proved = self._members(record)
        if proved:
            return Liveness.ALIVE if living else Liveness.GONE
        if leader is not None and leader.token != reference.start_token:
            return Liveness.GONE  # the kernel gave the number away, which it does only when the group is empty
        return Liveness.UNKNOWN if living else Liveness.GONE

    def owns_port(self, record: InstanceRecord) -> bool | None:
        """Whether a process of the instance listens on its port."""
        living, proved = self._members(record)
        if not proved or not living:
            return False
        escaped = [row.pid for row in self._descendants(living)]
        return self._table.listens([*(row.pid for row in living), *escaped], record.port)

    def remember(self, record: InstanceRecord) -> Mapping[int, str]:
        """Pids and tokens of all members, if the group is proved."""
        living, proved = self._members(record)
        return {row.pid: row.token for row in living} if proved else {}

    def find(self, nonce: str) -> ProcessReference | None:
        """The session leader that carries a nonce."""
        for row in self._table.rows():
            if row.pid == row.session and not row.dead and self._table.marker(row.pid, NONCE_VARIABLE) == nonce:
                return ProcessReference(row.pid, row.token)
        return None

    def _descendants(self, members: tuple[ProcessInfo, ...]) -> tuple[ProcessInfo, ...]:
        """Living descendants of members that left the group (Ray, MPI)."""
        rows = self._table.rows()
        inside = {row.pid for row in members}
        found: dict[int, ProcessInfo] = {}
        grew = True
        while grew:
            new = {r.pid: r for r in rows if r.parent in inside and r.pid not in inside and not r.dead}
            found |= new
            inside |= set(new)
            grew = bool(new)
        return tuple(found.values())

    # --- end ----------------------------------------------------------------------------------------------------------

    def exit_status(self, record: InstanceRecord) -> ExitStatus:
        """Exit code or signal of the leader if it was our child; otherwise nobody knows."""
        self._reap(record)
        return _ENDED.get(record.nonce, ExitStatus())

    @staticmethod
    def _reap(record: InstanceRecord) -> None:
        reference = record.ref
        if not isinstance(reference, ProcessReference):
            return
        with _REAPING:
            child = _CHILDREN.get(reference.pid)
            if child is None or (code := child.poll()) is None:
                return
            del _CHILDREN[child.pid]
            ended = ExitStatus(exit_code=code) if code >= 0 else ExitStatus(signal=signal.Signals(-code).name)
            _ENDED[record.nonce] = ended

    def stop(self, record: InstanceRecord, grace_ms: int) -> StopOutcome:
        """End the group (rule 6)."""
        living, proved = self._members(record)
        if not living or not proved:
            return StopOutcome.ABSENT if self.liveness(record) is Liveness.GONE else StopOutcome.NOT_PROVED
        escaped = self._descendants(living)
        for number, wait_ms in ((signal.SIGTERM, grace_ms), (signal.SIGKILL, KILL_WAIT_MS)):
            if not self._signal(record, escaped, number):
                return StopOutcome.NOT_PROVED
            if self._gone_within(record, escaped, wait_ms):
                return StopOutcome.STOPPED
        return StopOutcome.SURVIVED

    def _signal(self, record: InstanceRecord, escaped: tuple[ProcessInfo, ...], number: signal.Signals) -> bool:
        living, proved = self._members(record)
        if living and not proved:
            return False
        if living:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(living[0].group, number)
        for row in escaped:
            _signal_one(self._table, row, number)
        return True

    def _gone_within(self, record: InstanceRecord, escaped: tuple[ProcessInfo, ...], wait_ms: int) -> bool:
        end = self._clock.monotonic_ms() + wait_ms
        while True:
            living, _ = self._members(record)
            if not living and not any(_lives(self._table, row) for row in escaped):
                return True
            if self._clock.monotonic_ms() >= end:
                return False
            self._clock.sleep_ms(STOP_POLL_MS)

    def log_tail(self, record: InstanceRecord, log_path: Path, limit: int) -> str:
        """The end of the log file."""
        del record
        return tail_of_file(log_path, limit)


def _lives(table: ProcessTable, row: ProcessInfo) -> bool:
    now = table.read(row.pid)
    return now is not None and now.token == row.token and not now.dead


def _signal_one(table: ProcessTable, row: ProcessInfo, number: signal.Signals) -> None:
    """Signal one process that still is what it was; through a pidfd where there is one, which closes the race."""
    with contextlib.suppress(ProcessLookupError):
        if not hasattr(os, "pidfd_open"):
            if _lives(table, row):
                os.kill(row.pid, number)
            return
        handle = os.pidfd_open(row.pid)
        try:
            if _lives(table, row):
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)
