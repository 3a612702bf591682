"""Which devices an engine may see: the one place that writes device variables and container device options.

An engine's plan names devices by stable id. Ordinals and render nodes are facts of this boot, so they come in as a
mapping (``places``), which a device probe makes; the functions here are pure and total.

| accelerator | process environment | container |
|---|---|---|
| cuda | ``CUDA_VISIBLE_DEVICES`` = UUIDs, ``CUDA_DEVICE_ORDER`` = ``PCI_BUS_ID`` | device request by UUID (1) |
| rocm | one of ``ROCR_VISIBLE_DEVICES``, ``HIP_VISIBLE_DEVICES`` (2) | ``/dev/kfd``, render nodes, numeric groups |
| xpu | ``ZE_AFFINITY_MASK`` = ordinals | the chosen nodes and their groups |
| metal, cpu | nothing | nothing |

The caller's order of devices is kept. (1) In WSL also the variable inside: the toolkit ignores the request there. (2)
Both together filter twice. ROCR takes ids of the form ``GPU-<16 hex>``, HIP takes ordinals.
A launch without devices on a CUDA host sees none: it holds no lease. Device variables win over the caller's own.
Sources: CUDA and ROCm environment documentation, nvidia-container-toolkit issues 21 and 70, vLLM issues 51677 and
41848, PyTorch pull request 142292.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tasc_compute.contracts import Accelerator, DeviceId, EngineRuntimeKind, LaunchPlan

_CUDA_ID: Final = re.compile(r"(GPU|MIG|MIG-GPU)-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(/\d+/\d+)?")
_ROCR_ID: Final = re.compile(r"GPU-[0-9a-fA-F]{16}")

DEVICE_VARIABLES: Final = frozenset(
    {
        "CUDA_VISIBLE_DEVICES",
        "CUDA_DEVICE_ORDER",
        "HIP_VISIBLE_DEVICES",
        "ROCR_VISIBLE_DEVICES",
        "ZE_AFFINITY_MASK",
        "ONEAPI_DEVICE_SELECTOR",
    }
)
"""Variables that only this module sets; a recipe's own are dropped where the host has that kind of device."""


@dataclass(frozen=True, slots=True)
class DevicePlace:
    """Where a device is during this boot.

    Args:
        ordinal: index in the driver's order, or ``None`` if it is not known.
        nodes: device files, such as ``/dev/dri/renderD128``.
        groups: numeric ids of the groups that own them.
    """

    ordinal: int | None
    nodes: tuple[str, ...] = ()
    groups: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ContainerDevices:
    """Device options of a container."""

    gpu_ids: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    groups: tuple[int, ...] = ()
    security_options: tuple[str, ...] = ()


def unusable(devices: tuple[DeviceId, ...], accelerator: Accelerator) -> str | None:
    """Why CUDA would not take these ids, or ``None``: it needs full UUIDs, and at most one MIG slice per process."""
    if accelerator is not Accelerator.CUDA:
        return None
    bad = [device for device in devices if not _CUDA_ID.fullmatch(device)]
    if bad:
        return f"{bad[0]} is no full device UUID; tasc devices shows them"
    if sum(device.startswith("MIG") for device in devices) > 1:
        return "a CUDA process sees at most one MIG slice; name one"
    return None


def unplaced(
    devices: tuple[DeviceId, ...],
    accelerator: Accelerator,
    kind: EngineRuntimeKind,
    places: Mapping[DeviceId, DevicePlace],
    *,
    hip_only: bool,
) -> tuple[DeviceId, ...]:
    """Devices that cannot be made visible because their ordinal or nodes are unknown; a launch with one is refused.

    Args:
        devices: ids, as the instance record holds them.
        accelerator: only ROCm and XPU devices need a place; of others the result is empty.
        kind: a process needs ordinals, a container the device's nodes.
        places: where each device was found on this host.
        hip_only: the engine reads only ``HIP_VISIBLE_DEVICES``, which takes ordinals and no ids.
    """
    if accelerator not in (Accelerator.ROCM, Accelerator.XPU):
        return ()
    missing = []
    for device in devices:
        place = places.get(device)
        if kind is EngineRuntimeKind.DOCKER:
            known = place is not None and bool(place.nodes)
        elif accelerator is Accelerator.ROCM and not hip_only and _ROCR_ID.fullmatch(device):
            known = True
        else:
            known = place is not None and place.ordinal is not None
        if not known:
            missing.append(device)
    return tuple(missing)


def apply_devices(
    plan: LaunchPlan,
    accelerator: Accelerator,
    places: Mapping[DeviceId, DevicePlace] | None = None,
    *,
    wsl: bool = False,
    hip_only: bool = False,
) -> LaunchPlan:
    """A plan whose environment shows an engine its devices and no others.

    Args:
        plan: an engine's plan.
        accelerator: what the host computes with.
        places: ordinal and nodes of each device.
        wsl: the host is WSL.
        hip_only: the engine takes ``HIP_VISIBLE_DEVICES`` only.
    """
    variables = device_variables(plan.devices, accelerator, plan.kind, places or {}, wsl=wsl, hip_only=hip_only)
    if not variables and accelerator in (Accelerator.METAL, Accelerator.CPU):
        return plan
    kept = {name: value for name, value in plan.env.items() if name not in DEVICE_VARIABLES}
    return dataclasses.replace(plan, env={**kept, **variables})


def device_variables(
    devices: tuple[DeviceId, ...],
    accelerator: Accelerator,
    kind: EngineRuntimeKind,
    places: Mapping[DeviceId, DevicePlace],
    *,
    wsl: bool,
    hip_only: bool,
) -> dict[str, str]:
    """The environment variables of the table above; empty where visibility is set by other means, or there is no device.

    Args:
        devices: ids, in the order in which the engine shall count them.
        accelerator: decides which variable is meant.
        kind: a container gets its devices by the table's third column instead.
        places: where each device was found on this host.
        wsl: under WSL a container sees all devices of CUDA, so it gets the variable too.
        hip_only: the engine reads only ``HIP_VISIBLE_DEVICES``, which takes ordinals and no ids.
    """
    process = kind is EngineRuntimeKind.PROCESS
    if accelerator is Accelerator.CUDA and (process or (wsl and devices)):
        return {"CUDA_VISIBLE_DEVICES": ",".join(devices), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    if not process or not devices:
        return {}
    ordinals = [place.ordinal for device in devices if (place := places.get(device))]
    numbers = ",".join(str(ordinal) for ordinal in ordinals if ordinal is not None)
    if accelerator is Accelerator.ROCM:
        if not hip_only and all(_ROCR_ID.fullmatch(device) for device in devices):
            return {"ROCR_VISIBLE_DEVICES": ",".join(devices)}
        return {"HIP_VISIBLE_DEVICES": numbers}
    if accelerator is Accelerator.XPU:
        return {"ZE_AFFINITY_MASK": numbers}
    return {}


def container_devices(
    devices: tuple[DeviceId, ...], accelerator: Accelerator, places: Mapping[DeviceId, DevicePlace] | None = None
) -> ContainerDevices:
    """The device options of a container, by the table above."""
    if not devices or accelerator in (Accelerator.METAL, Accelerator.CPU):
        return ContainerDevices()
    if accelerator is Accelerator.CUDA:
        return ContainerDevices(gpu_ids=devices)
    known = [place for device in devices if (place := (places or {}).get(device))]
    nodes = tuple(node for place in known for node in place.nodes)
    groups = tuple(sorted({group for place in known for group in place.groups}))
    if accelerator is Accelerator.ROCM:
        # AMD's container documentation asks for the unconfined profile: the runtime needs system calls it forbids
        return ContainerDevices((), ("/dev/kfd", *nodes), groups, ("seccomp=unconfined",))
    return ContainerDevices((), nodes, groups)


def docker_options(devices: ContainerDevices) -> tuple[str, ...]:
    """The same options as arguments of ``docker run``, to show to a person.

    The value of ``--gpus`` needs quotes of its own around several ids, which docker's parser would split at the comma.
    """
    out: list[str] = []
    if devices.gpu_ids:
        listed = "device=" + ",".join(devices.gpu_ids)
        out += ["--gpus", f'"{listed}"' if len(devices.gpu_ids) > 1 else listed]
    for node in devices.nodes:
        out += ["--device", node]
    for group in devices.groups:
        out += ["--group-add", str(group)]
    for option in devices.security_options:
        out += ["--security-opt", option]
    return tuple(out)
