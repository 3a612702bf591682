"""Which devices an engine sees, for every accelerator."""

from __future__ import annotations

import pytest

from tasc_compute.contracts import Accelerator, EngineRuntimeKind, HealthCheck, LaunchPlan
from tasc_compute.visibility import (
    ContainerDevices,
    DevicePlace,
    apply_devices,
    container_devices,
    docker_options,
    unplaced,
    unusable,
)

A, B = "GPU-6d2a3c1e-0b7f-5f0e-9f5a-3b8f1c7a9e21", "GPU-35fa9bdb-0b7f-5f0e-9f5a-3b8f1c7a9e22"
R1, R2 = "GPU-0cee36ddc4255115", "GPU-0cee36ddc4255116"
PLACES = {
    R1: DevicePlace(1, ("/dev/dri/renderD129",), (109,)),
    R2: DevicePlace(0, ("/dev/dri/renderD128",), (109, 44)),
    "xpu-1": DevicePlace(3, ("/dev/dri/renderD131",), (110,)),
}
PROCESS, DOCKER = EngineRuntimeKind.PROCESS, EngineRuntimeKind.DOCKER


def plan(*devices: str, kind: EngineRuntimeKind = PROCESS, **env: str) -> LaunchPlan:
    return LaunchPlan(kind, ("x",), env, (), (), devices, HealthCheck("/health", 1, 1))


def test_cuda_takes_full_uuids_in_the_callers_order():
    """Lessons 23 and 28: never an index, and the order is the caller's."""
    assert apply_devices(plan(B, A), Accelerator.CUDA).env == {
        "CUDA_VISIBLE_DEVICES": f"{B},{A}",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }


def test_the_callers_own_device_variables_do_not_override():
    done = apply_devices(plan(A, CUDA_VISIBLE_DEVICES="7", HIP_VISIBLE_DEVICES="7", OTHER="1"), Accelerator.CUDA)
    assert done.env == {"OTHER": "1", "CUDA_VISIBLE_DEVICES": A, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def test_a_launch_without_devices_on_a_cuda_host_sees_none():
    assert apply_devices(plan(), Accelerator.CUDA).env["CUDA_VISIBLE_DEVICES"] == ""


def test_a_container_gets_devices_by_request_and_in_wsl_also_by_variable():
    """Lesson 29: the toolkit in WSL ignores the request."""
    assert apply_devices(plan(A, kind=DOCKER), Accelerator.CUDA).env == {}
    assert apply_devices(plan(A, kind=DOCKER), Accelerator.CUDA, wsl=True).env["CUDA_VISIBLE_DEVICES"] == A


def test_rocm_sets_exactly_one_variable():
    """Lesson 27: ROCR and HIP filters compose."""
    assert apply_devices(plan(R1, R2), Accelerator.ROCM, PLACES).env == {"ROCR_VISIBLE_DEVICES": f"{R1},{R2}"}
    assert apply_devices(plan(R1, R2), Accelerator.ROCM, PLACES, hip_only=True).env == {"HIP_VISIBLE_DEVICES": "1,0"}


def test_xpu_takes_ordinals():
    assert apply_devices(plan("xpu-1"), Accelerator.XPU, PLACES).env == {"ZE_AFFINITY_MASK": "3"}


@pytest.mark.parametrize("accelerator", [Accelerator.METAL, Accelerator.CPU])
def test_metal_and_cpu_change_nothing(accelerator):
    item = plan("metal:0", CUDA_VISIBLE_DEVICES="0")
    assert apply_devices(item, accelerator) == item


@pytest.mark.parametrize(
    ("devices", "accelerator", "kind", "hip_only", "missing"),
    [
        ((A,), Accelerator.CUDA, PROCESS, False, ()),
        ((R1,), Accelerator.ROCM, PROCESS, False, ()),
        (("amd-1",), Accelerator.ROCM, PROCESS, False, ("amd-1",)),
        (("GPU-0cee36ddc4255117",), Accelerator.ROCM, PROCESS, True, ("GPU-0cee36ddc4255117",)),
        (("GPU-0cee36ddc4255117",), Accelerator.ROCM, DOCKER, False, ("GPU-0cee36ddc4255117",)),
        (("xpu-1", "xpu-2"), Accelerator.XPU, PROCESS, False, ("xpu-2",)),
    ],
)
def test_devices_that_could_not_be_shown_are_named(devices, accelerator, kind, hip_only, missing):
    assert unplaced(devices, accelerator, kind, PLACES, hip_only=hip_only) == missing


@pytest.mark.parametrize(
    ("devices", "says"),
    [
        ((A, B), None),
        (("MIG-6d2a3c1e-0b7f-5f0e-9f5a-3b8f1c7a9e21",), None),
        (("MIG-GPU-6d2a3c1e-0b7f-5f0e-9f5a-3b8f1c7a9e21/1/0",), None),
        (("0",), "0 is no full device UUID; tasc devices shows them"),
        (("GPU-6d2a3c1e",), "GPU-6d2a3c1e is no full device UUID; tasc devices shows them"),
    ],
)
def test_cuda_ids_are_full_uuids(devices, says):
    """Lesson 25: shortened UUIDs crash the engine."""
    assert unusable(devices, Accelerator.CUDA) == says


def test_container_options_of_each_accelerator():
    assert container_devices((A,), Accelerator.CUDA) == ContainerDevices(gpu_ids=(A,))
    assert container_devices((R1, R2), Accelerator.ROCM, PLACES) == ContainerDevices(
        (), ("/dev/kfd", "/dev/dri/renderD129", "/dev/dri/renderD128"), (44, 109), ("seccomp=unconfined",)
    )
    assert container_devices(("xpu-1",), Accelerator.XPU, PLACES) == ContainerDevices(
        (), ("/dev/dri/renderD131",), (110,)
    )
    assert container_devices(("metal:0",), Accelerator.METAL) == ContainerDevices()


def test_several_ids_need_quotes_of_their_own_on_dockers_command_line():
    """Lesson 48: docker's parser splits an unquoted list at the comma."""
    assert docker_options(ContainerDevices(gpu_ids=(A,))) == ("--gpus", f"device={A}")
    assert docker_options(ContainerDevices(gpu_ids=(A, B))) == ("--gpus", f'"device={A},{B}"')
