"""What the devices of the collecting host did around and inside a window, signed one by one.

Rules:

1. One snapshot is made before the first call, one every ``every_s`` seconds while calls are made, one after the last.
   After each ``_AT_ONE_PACE`` snapshots the pace halves, so that a day or a week stays a small file; and where tools
   are slow, they run for a tenth of the time at most, because they share the processor with the clock of the calls.
2. ``device-snapshots.ndjson`` in the window's folder has one signed ``tasc-device-snapshot-v1`` per line, in the order
   in which they were made. A run that sent nothing leaves none: the same journal keeps giving the same tables.
3. Sampling decides nothing and never fails a run. A probe that cannot answer is logged once per category, a snapshot
   that cannot be made or written is missing.
4. Snapshots read; no engine is asked anything here, and nothing is ever made to generate while a window runs.
5. A host is known by a keyed id: the study's key makes it, so the record holds no host name.
"""

from __future__ import annotations

import logging
import platform
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal, Self

from tasc_collector.canonical import canonical_bytes, digest
from tasc_collector.contracts.observations import DeviceSnapshotRecord
from tasc_collector.contracts.operations import KeyRing
from tasc_collector.contracts.scalars import format_timestamp
from tasc_collector.errors import InputError
from tasc_collector.identity import PayloadKey
from tasc_collector.signing import SigningKey
from tasc_compute.clock import Clock, SystemClock
from tasc_compute.codec import from_json, to_json
from tasc_compute.contracts import AcceleratorInfo, DeviceSnapshot
from tasc_compute.devices.snapshot import Survey, survey
from tasc_compute.errors import ContractError
from tasc_compute.limits import SURVEY_BUDGET_MS
from tasc_pipeline.home import keys, signers
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.lines import AppendedLines, read_signed_lines
from tasc_pipeline.steps.approved import ApprovedPlan

DEVICE_SNAPSHOTS: Final = "device-snapshots.ndjson"
DEVICES_EVERY_S: Final = 10.0
"""Seconds between two snapshots: heat and memory move over tens of seconds, and a snapshot starts vendor tools."""

_AT_ONE_PACE: Final = 512
_JOIN_S: Final = 2 * SURVEY_BUDGET_MS / 1000
_LOG: Final = logging.getLogger(__name__)

Phase = Literal["before", "during", "after"]
Sign = Callable[[DeviceSnapshot, Phase], DeviceSnapshotRecord]


class DeviceSampler:
    """Samples the host's devices while its block runs.

    Args:
        path: the file that snapshots are appended to.
        sign: makes the signed record of a snapshot.
        probe: looks at the devices.
        every_s: seconds between two snapshots at first.
        clock: measures how long a snapshot takes.
    """

    def __init__(
        self,
        path: Path,
        sign: Sign,
        *,
        probe: Callable[[], Survey] = survey,
        every_s: float = DEVICES_EVERY_S,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._sign, self._probe, self._every_s = sign, probe, every_s
        self._file = AppendedLines(path)
        self._lines: AppendedLines | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._during, name="device-sampler", daemon=True)
        self._taken = 0
        self._took_s = 0.0
        self._logged: set[str] = set()

    def __enter__(self) -> Self:
        try:
            self._lines = self._file.__enter__()
        except OSError:
            self._log("snapshot", "not-opened")
            return self
        self._take("before")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._lines is None:
            return
        self._stop.set()
        self._thread.join(_JOIN_S)
        if self._thread.is_alive():
            # the file stays open for it: a thread that wakes late must not write to another file's descriptor
            self._log("snapshot", "did-not-end")
            return
        self._take("after")
        try:
            self._lines.__exit__()
        except OSError:
            self._log("snapshot", "not-synced")

    def forget(self) -> None:
        """Drop this block's snapshots when it ends: nothing was sent."""
        self._file.forget()

    def _during(self) -> None:
        while not self._stop.wait(max(self._every_s * 2 ** (self._taken // _AT_ONE_PACE), 9 * self._took_s)):
            self._take("during")

    def _take(self, phase: Phase) -> None:
        started_ms = self._clock.monotonic_ms()
        try:
            found = self._probe()
            self._took_s = (self._clock.monotonic_ms() - started_ms) / 1000
            for fault in found.faults:
                self._log(fault.probe, fault.category)
            record = self._sign(found.snapshot, phase)
            if self._lines is not None:
                self._lines.write(canonical_bytes(record.to_json()))
                self._taken += 1
        except OSError:
            self._log("snapshot", "not-written")
        except Exception as error:  # noqa: BLE001  # boundary, rule 3: whatever a host does, the window goes on
            self._log("snapshot", type(error).__name__)

    def _log(self, probe: str, category: str) -> None:
        if f"{probe} {category}" not in self._logged:
            self._logged.add(f"{probe} {category}")
            _LOG.warning("device probe %s: %s", probe, category)


@contextmanager
def sampling_devices(
    home: Home, approved: ApprovedPlan, *, probe: Callable[[], Survey] = survey, every_s: float = DEVICES_EVERY_S
) -> Iterator[DeviceSampler]:
    """Sample this host's devices for a window while the block runs.

    Args:
        home: the state folder.
        approved: the approved plan.
        probe: looks at the devices.
        every_s: seconds between two snapshots at first.
    """
    study, window_key = approved.study.study, approved.plan.record.window_key
    signer = signers.collector(home, approved.ring, study, format_timestamp(datetime.now(UTC)))
    node_id = node_id_of(keys.payload_key(home, study.study_id, study.keys.payload_key_id, study.keys.payload_hmac))

    def sign(snapshot: DeviceSnapshot, phase: Phase) -> DeviceSnapshotRecord:
        return sign_snapshot(
            snapshot, phase, window_key=window_key, node_id=node_id, key=signer.key, key_id=signer.key_id
        )

    path = home.window(window_key) / DEVICE_SNAPSHOTS
    with DeviceSampler(path, sign, probe=probe, every_s=every_s) as sampler:
        yield sampler


def node_id_of(key: PayloadKey, name: str | None = None) -> str:
    """Keyed id of a host: ``node-`` and 16 hex digits.

    Args:
        key: the study's payload key.
        name: the host's name; this one's where it is ``None``.
    """
    return f"node-{key.identify_json('tasc/node-id/v1', name or platform.node()).value[:16]}"


def sign_snapshot(
    snapshot: DeviceSnapshot, phase: Phase, *, window_key: str, node_id: str, key: SigningKey, key_id: str
) -> DeviceSnapshotRecord:
    """The signed record of one snapshot."""
    return DeviceSnapshotRecord.sign_with(
        key,
        key_id,
        window_key=window_key,
        phase=phase,
        sampled_at=snapshot.sampled_at,
        node_id=node_id,
        snapshot=to_json(snapshot),
    )


def read_device_snapshots(home: Home, window_key: str, ring: KeyRing) -> tuple[DeviceSnapshotRecord, ...]:
    """The window's snapshots, each verified; none where none were made.

    Raises:
        InputError: a line is no snapshot, or belongs to another window.
        SignatureError: no collector key of the ring signed it.
    """
    path = home.window(window_key) / DEVICE_SNAPSHOTS
    found = tuple(read_signed_lines(DeviceSnapshotRecord, path, ring, "collector", lambda record: record.sampled_at))
    for record in found:
        if record.window_key != window_key:
            raise InputError(
                "a snapshot belongs to another window", where=path.name, field="windowKey", way_out="restore the file"
            )
        _content(record)
    return found


def device_snapshots_digest(home: Home, window_key: str, ring: KeyRing) -> str | None:
    """Digest over the window's snapshots in their order, as its link binds them; None where there are none.

    Raises:
        InputError, SignatureError: as ``read_device_snapshots``.
    """
    found = read_device_snapshots(home, window_key, ring)
    return digest("tasc/device-snapshot-list/v1", [record.digest for record in found]) if found else None


def _content(record: DeviceSnapshotRecord) -> DeviceSnapshot:
    try:
        return from_json(DeviceSnapshot, record.snapshot, where=DEVICE_SNAPSHOTS)
    except ContractError as error:
        raise InputError(error.what, where=DEVICE_SNAPSHOTS, field=error.field, way_out="restore the file") from None


_MAXIMA: Final[Mapping[str, Callable[[AcceleratorInfo], float | None]]] = {
    "device_utilization_max_pct": lambda device: device.utilization_pct,
    "device_memory_used_max_bytes": lambda device: device.memory_used_bytes if device.memory_total_bytes else None,
    "device_temperature_max_c": lambda device: device.temperature_c,
    "device_power_max_watts": lambda device: device.power_watts,
}


def maxima(records: Iterable[DeviceSnapshotRecord]) -> dict[str, float]:
    """The highest value of each quantity that any device of any snapshot told; what none told is left out."""
    highest: dict[str, float] = {}
    for record in records:
        for device in _content(record).accelerators:
            for name, value_of in _MAXIMA.items():
                value = value_of(device)
                if value is not None:
                    highest[name] = max(float(value), highest.get(name, float(value)))
    return highest
