"""Instance records: one JSON file each, and the records *are* the leases of devices, names and ports.

Rules:

1. Every change happens under ``flock`` on ``placement.lock``, which is never unlinked: the kernel frees it when a
   holder dies, and two takers can never both believe a dead holder's file (unlike a pid file). A mutex keeps threads
   of one process in line.
2. A file is replaced by: temporary file in the same folder, fsync, rename, fsync of the folder. A reader sees the old
   record or the new one.
3. A reservation is a record without a reference. Its maker holds ``flock`` on the record's own ``.launching`` file;
   when that lock can be taken, the maker is dead. A reservation of a dead maker is dropped, after a search by nonce
   for what it may have started; where nobody here can search (no docker extra), it stays and is held.
4. A device is held if and only if a live record claims it. Alive: a reservation with a living maker, a pinned hold,
   and what a launcher calls alive or unknown. A record that cannot be read holds everything: it may be a live lease.
5. Devices and port are chosen inside the lock. On hosts with unified memory, and for ``cpu:`` devices, a device can be
   shared, except with a pinned hold; everywhere else it cannot.
6. A record is removed only when nothing of its instance lives.

Beside a record lie: ``.launching`` (rule 3), ``.ready`` (the nonce of an instance that proved its readiness once) and
``.members`` (pids and tokens of its processes). They are evidence, not state; all go with the record.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tasc_compute.clock import Clock
from tasc_compute.codec import dumps, loads
from tasc_compute.contracts import DeviceId, InstanceRecord, PinnedReference
from tasc_compute.errors import ContractError, StoreError
from tasc_compute.limits import LOCK_POLL_MOST_MS, LOCK_POLL_MS, LOCK_WAIT_MS, MAX_NAME_LENGTH, MAX_RECORD_BYTES
from tasc_compute.state import Liveness, parse_time

_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
_SIDE_FILES: Final = ("launching", "ready", "members")


@dataclass(frozen=True, slots=True)
class Held:
    """What is taken.

    Args:
        devices: device to the name of the instance that holds it.
        pinned: devices of pinned holds; they are never shared.
        ports: port to the name of the instance that has it.
        unreadable: file names of records that cannot be read; while there are any, nothing is free.
    """

    devices: Mapping[DeviceId, str]
    pinned: frozenset[DeviceId]
    ports: Mapping[int, str]
    unreadable: tuple[str, ...]


def check_name(name: str) -> str:
    """An instance name: lower-case letters, digits and inner hyphens, so that it is a file, container and DNS name.

    Raises:
        StoreError: it is none.
    """
    if len(name) > MAX_NAME_LENGTH or not _NAME.fullmatch(name):
        raise StoreError(
            "is no instance name",
            field="name",
            rule=f"lower-case letters, digits, inner hyphens, at most {MAX_NAME_LENGTH}",
            way_out="rename the recipe",
        )
    return name


class LaunchGuard:
    """Proof that the maker of a reservation lives: an exclusive lock that ends with the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        """The record has its reference (or is gone): the maker is no longer needed."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class InstanceStore:
    """The folder of instance records.

    Args:
        folder: made with mode 0700 if it is missing. It must be on a local file system: flock means nothing on some
            others.
        clock: for the wait for a lock.

    Raises:
        StoreError: the folder cannot be made or is a link.
    """

    def __init__(self, folder: Path, clock: Clock) -> None:
        self.folder = folder
        self._clock = clock
        self._mutex = threading.RLock()
        self._depth = 0
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"the instance folder cannot be made ({error.strerror})", where=folder.name, way_out="check TASC_HOME"
            ) from None
        if folder.is_symlink():
            raise StoreError("the instance folder is a link", where=folder.name, way_out="name the folder itself")

    # --- locks --------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def locked(self, cancel: threading.Event | None = None) -> Iterator[None]:
        """Hold the placement lock (rule 1); a thread that has it may enter again.

        Raises:
            StoreError: it was not to be had in time, or the caller gave up.
        """
        with self._mutex:
            if self._depth:
                yield
                return
            descriptor = self._take("placement.lock", LOCK_WAIT_MS, cancel)
            self._depth = 1
            try:
                yield
            finally:
                self._depth = 0
                os.close(descriptor)

    def _take(self, name: str, wait_ms: int, cancel: threading.Event | None) -> int:
        descriptor = self._open_lock(name)
        end = self._clock.monotonic_ms() + wait_ms
        poll_ms = LOCK_POLL_MS
        while not _try_lock(descriptor):
            if self._clock.monotonic_ms() >= end or (cancel is not None and cancel.is_set()):
                os.close(descriptor)
                raise StoreError(
                    "another process holds the lock",
                    where=name,
                    way_out="wait for the launch that is under way, then try again",
                )
            self._clock.sleep_ms(poll_ms)
            poll_ms = min(2 * poll_ms, LOCK_POLL_MOST_MS)
        return descriptor

    def _open_lock(self, name: str) -> int:
        try:
            return os.open(self.folder / name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise StoreError(
                f"cannot be opened ({error.strerror})", where=name, way_out="check the state folder"
            ) from None

    @contextlib.contextmanager
    def starting(
        self, devices: Sequence[DeviceId], wait_ms: int, cancel: threading.Event | None = None
    ) -> Iterator[None]:
        """Be the only one that starts an engine on these devices, also where they are shared.

        Raises:
            StoreError: another start took longer than ``wait_ms``, or the caller gave up.
        """
        with contextlib.ExitStack() as stack:
            # one order for all, so that two launches never wait for each other
            for device in sorted(set(devices)):
                name = "start-" + "".join(c if c.isalnum() else "-" for c in device) + ".lock"
                stack.callback(os.close, self._take(name, wait_ms, cancel))
            yield

    def guard(self, name: str) -> LaunchGuard | None:
        """Become the maker of a reservation; ``None`` if its maker lives. Call it under the placement lock."""
        descriptor = self._open_lock(f"{name}.launching")
        if _try_lock(descriptor):
            return LaunchGuard(descriptor)
        os.close(descriptor)
        return None

    def maker_lives(self, name: str) -> bool:
        """Whether the maker of a reservation lives."""
        with self.locked():
            guard = self.guard(name)
            if guard is None:
                return True
            guard.release()
            return False

    # --- records ------------------------------------------------------------------------------------------------------

    def names(self) -> tuple[str, ...]:
        """Names of all record files, readable or not."""
        return tuple(sorted(path.name.removesuffix(".json") for path in self.folder.glob("*.json")))

    def read(self, name: str) -> InstanceRecord | None:
        """The record of a name, or ``None``.

        Raises:
            StoreError: there is a file, but it is not this record.
        """
        path = self.folder / f"{check_name(name)}.json"
        try:
            with path.open("rb") as stream:
                data = stream.read(MAX_RECORD_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"cannot be read ({error.strerror})", where=path.name) from None
        try:
            record = loads(InstanceRecord, data, where=path.name)
            parse_time(record.started_at)
            parse_time(record.ready_deadline_at)
        except ContractError as error:
            raise StoreError(
                "the record is damaged, so it counts as held",
                where=path.name,
                field=error.field,
                rule=error.what,
                way_out="make sure that its engine is gone, then remove the file",
            ) from None
        if record.name != name:
            raise StoreError("the record has another name", where=path.name, way_out="restore its file name")
        return record

    def all(self) -> tuple[tuple[InstanceRecord, ...], tuple[str, ...]]:
        """All readable records, and the file names of the others."""
        records: list[InstanceRecord] = []
        bad: list[str] = []
        for name in self.names():
            try:
                record = self.read(name)
            except StoreError:
                bad.append(f"{name}.json")
                continue
            if record is not None:
                records.append(record)
        return tuple(records), tuple(bad)

    def write(self, record: InstanceRecord) -> None:
        """Make a record durable (rule 2).

        Raises:
            StoreError: it could not be written; the old record stands.
        """
        with self.locked():
            self._replace(f"{check_name(record.name)}.json", dumps(record))

    def remove(self, record: InstanceRecord) -> None:
        """Remove a record and what lies beside it, if the file still is this instance's."""
        with self.locked():
            current = self.read(record.name)
            if current is None or current.nonce != record.nonce:
                return
            (self.folder / f"{record.name}.json").unlink()
            for suffix in _SIDE_FILES:
                (self.folder / f"{record.name}.{suffix}").unlink(missing_ok=True)
            self._sync_folder()

    def sweep(self) -> None:
        """Remove what writers that died left behind: temporary files, and files beside a record that is gone.

        Both are only made under the placement lock, so that under it all of them are left-overs.
        """
        with self.locked():
            names = set(self.names())
            for path in self.folder.glob(".*.tmp"):
                path.unlink(missing_ok=True)
            for suffix in _SIDE_FILES:
                for path in self.folder.glob(f"*.{suffix}"):
                    if path.name.removesuffix(f".{suffix}") not in names:
                        path.unlink(missing_ok=True)

    def held(self, liveness: Callable[[InstanceRecord], Liveness]) -> Held:
        """What is taken now (rule 4). Call it under the placement lock."""
        devices: dict[DeviceId, str] = {}
        ports: dict[int, str] = {}
        pinned: set[DeviceId] = set()
        records, bad = self.all()
        for record in records:
            if not self.is_live(record, liveness):
                continue
            devices |= dict.fromkeys(record.devices, record.name)
            if isinstance(record.ref, PinnedReference):
                pinned |= set(record.devices)
            else:
                ports[record.port] = record.name
        return Held(devices, frozenset(pinned), ports, bad)

    def is_live(self, record: InstanceRecord, liveness: Callable[[InstanceRecord], Liveness]) -> bool:
        """Whether a record is a lease (rule 4)."""
        if record.ref is None:
            return self.maker_lives(record.name) or liveness(record) is Liveness.UNKNOWN
        if isinstance(record.ref, PinnedReference):
            return True
        return liveness(record) is not Liveness.GONE

    # --- evidence beside a record -------------------------------------------------------------------------------------

    def latch(self, record: InstanceRecord) -> None:
        """Write down that this instance proved its readiness."""
        with self.locked():
            self._replace(f"{record.name}.ready", record.nonce.encode())

    def latched(self, record: InstanceRecord) -> bool:
        """Whether this very instance once proved its readiness."""
        try:
            return (self.folder / f"{record.name}.ready").read_text() == record.nonce
        except (OSError, ValueError):
            return False

    def remember(self, record: InstanceRecord, members: Mapping[int, str]) -> None:
        """Add members (pid to start token) of an instance to those written down."""
        if not members:
            return
        with self.locked():
            known = dict(self.members(record)) | dict(members)
            content = {"nonce": record.nonce, "members": {str(pid): token for pid, token in known.items()}}
            self._replace(f"{record.name}.members", json.dumps(content, sort_keys=True).encode())

    def members(self, record: InstanceRecord) -> Mapping[int, str]:
        """The members of this instance that were written down."""
        try:
            content = json.loads((self.folder / f"{record.name}.members").read_bytes())
            if content["nonce"] != record.nonce:
                return {}
            return {int(pid): str(token) for pid, token in content["members"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}

    # --- files --------------------------------------------------------------------------------------------------------

    def _replace(self, name: str, data: bytes) -> None:
        temporary = self.folder / f".{name}.{os.getpid()}.tmp"
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(descriptor, view) :]
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            temporary.replace(self.folder / name)
            self._sync_folder()
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise StoreError(
                f"cannot be written ({error.strerror})",
                where=name,
                way_out="check space and rights of the state folder",
            ) from None

    def _sync_folder(self) -> None:
        descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES, errno.EINTR):
            return False
        raise StoreError(f"the file system has no locks ({error.strerror})", way_out="use a local folder") from None
    return True
