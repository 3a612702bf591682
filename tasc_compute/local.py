"""The compute layer of this host, put together: its folders, its launchers, and recipes launched on it."""

from __future__ import annotations

import dataclasses
import importlib.util
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tasc_compute.clock import SystemClock
from tasc_compute.contracts import AcceleratorInfo, DeviceId, EngineRuntimeKind, InstanceRecord, LaunchPlan
from tasc_compute.devices.facts import ProbedDeviceFacts
from tasc_compute.engines.base import Dropped
from tasc_compute.errors import StoreError
from tasc_compute.host import host_profile
from tasc_compute.instances import InstanceStore
from tasc_compute.launchers.base import Launcher
from tasc_compute.launchers.docker import DockerLauncher
from tasc_compute.launchers.process import ProcessLauncher
from tasc_compute.launchers.proctable import process_table
from tasc_compute.lifecycle import Compute, launch
from tasc_compute.planning import configuration_digest, dropped_knobs, plan_launch
from tasc_compute.recipes import Recipe, model_sha256, order_of
from tasc_compute.reservations import DeviceFacts, LaunchOrder
from tasc_compute.visibility import DevicePlace


@dataclass(frozen=True, slots=True)
class Launched:
    """A recipe that was launched.

    Args:
        record: the instance, ready.
        plan: what was launched.
        configuration_digest: identity of the engine's configuration, for an endpoint file.
        dropped: knobs that the engine has no equivalent for.
    """

    record: InstanceRecord
    plan: LaunchPlan
    configuration_digest: str
    dropped: tuple[Dropped, ...]


def local_compute(home: Path, facts: DeviceFacts | None = None) -> Compute:
    """The effects for a state folder: ``instances/`` and ``logs/`` in it are made if they are missing.

    Args:
        home: the state folder (``TASC_HOME``).
        facts: what is known about foreign use of devices; this host's own probes where it is ``None``.

    Raises:
        StoreError: a folder cannot be made.
    """
    clock = SystemClock()
    store = InstanceStore(home / "instances", clock)
    logs = home / "logs"
    try:
        logs.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"the log folder cannot be made ({error.strerror})", where=logs.name, way_out="check TASC_HOME"
        ) from None
    table = process_table()
    launchers: dict[EngineRuntimeKind, Launcher] = {
        EngineRuntimeKind.PROCESS: ProcessLauncher(clock, table, known=store.members)
    }
    if importlib.util.find_spec("docker") is not None:
        launchers[EngineRuntimeKind.DOCKER] = DockerLauncher()
    return Compute(store, launchers, clock, logs, facts or ProbedDeviceFacts(store), table.listener)


def local_order(
    recipe: Recipe,
    home: Path,
    accelerators: Sequence[AcceleratorInfo] = (),
    places: Mapping[DeviceId, DevicePlace] | None = None,
) -> LaunchOrder:
    """The launch order of a recipe on this host.

    Args:
        recipe: what to launch.
        home: the state folder.
        accelerators: what a device snapshot found; the ids of those that the host computes with are the pool that
            devices are chosen from.
        places: where they are during this boot.

    Raises:
        RecipeError: the model or a packaged binary is not there.
    """
    host = host_profile(accelerators)
    pool = tuple(item.id for item in accelerators if item.accelerator is host.accelerator)
    return order_of(recipe, host, link_folder=home / "instances" / "libraries", device_pool=pool, places=places)


def launch_recipe(
    recipe: Recipe,
    home: Path,
    *,
    accelerators: Sequence[AcceleratorInfo] = (),
    places: Mapping[DeviceId, DevicePlace] | None = None,
    facts: DeviceFacts | None = None,
    cancel: threading.Event | None = None,
) -> Launched:
    """Launch a recipe on this host and wait until it is ready.

    Args:
        recipe: what to launch.
        home: the state folder.
        accelerators: what a device snapshot found.
        places: where they are during this boot.
        facts: what is known about foreign use; this host's own probes where it is ``None``.
        cancel: set it to give up; the engine is then stopped.

    Raises:
        RecipeError: the model or binary is not there, or is not the pinned one.
        LaunchFailed: with the contract's failure.
        StoreError: the instance folder cannot be used.
    """
    order = local_order(recipe, home, accelerators, places)
    digest_of_model = model_sha256(recipe)
    record = launch(order, local_compute(home, facts), cancel=cancel)
    request = dataclasses.replace(order.request, devices=record.devices, port=record.port)
    plan = plan_launch(request, order.places)
    return Launched(record, plan, configuration_digest(plan, digest_of_model), dropped_knobs(request))
