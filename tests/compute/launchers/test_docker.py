"""The docker launcher against a small daemon on a UNIX socket; the real one is asked what it does not have, if it is there."""

from __future__ import annotations

import dataclasses
import gc
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("docker", reason="the extra docker is not installed")

from tasc_compute.contracts import (
    Accelerator,
    DockerReference,
    EngineId,
    EngineRuntimeKind,
    InstanceRecord,
    LaunchPlan,
    LaunchRequest,
    ServingOptions,
)
from tasc_compute.launchers.base import ExitStatus, InstallError, SpawnError, Start, StopOutcome
from tasc_compute.launchers.docker import DockerLauncher
from tasc_compute.planning import plan_launch
from tasc_compute.state import Liveness
from tasc_compute.visibility import ContainerDevices, container_devices
from tests.support.fake_docker import CONTAINER_ID, FakeDocker

IMAGE = "vllm/vllm-openai:v0.26.0"


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDocker]:
    with FakeDocker(tmp_path / "docker.sock", {IMAGE}) as daemon:
        yield daemon


@pytest.fixture
def launcher(daemon: FakeDocker, tmp_path: Path) -> DockerLauncher:
    return DockerLauncher(f"unix://{tmp_path}/docker.sock")


@pytest.fixture
def plan(host) -> LaunchPlan:
    cuda = dataclasses.replace(host, accelerator=Accelerator.CUDA, docker=True, docker_gpu=True, device_count=2)
    return plan_launch(
        LaunchRequest(
            engine=EngineId.VLLM,
            host=cuda,
            runtime=EngineRuntimeKind.DOCKER,
            devices=("GPU-a", "GPU-b"),
            port=8000,
            model_path="/data/models--org--m/snapshots/abc",
            served_model_name="m",
            options=ServingOptions(tensor_parallel=2),
            extra_args=(),
            env={"HF_HUB_OFFLINE": "1"},
            docker_image=None,
            binary="vllm",
        )
    )


def start_of(plan: LaunchPlan, tmp_path: Path, devices: ContainerDevices | None = None) -> Start:
    chosen = devices or container_devices(plan.devices, Accelerator.CUDA)
    return Start("one", "nonce-1", plan, chosen, tmp_path / "unused.log")


def record_of(reference: DockerReference, nonce: str = "nonce-1") -> InstanceRecord:
    time = "2026-01-01T00:00:00.000Z"
    return InstanceRecord(
        "one", "self", EngineId.VLLM, "one", EngineRuntimeKind.DOCKER, reference, 8000, ("GPU-a",), nonce, time, time
    )


def test_a_container_is_created_then_recorded_then_started(launcher, daemon, plan, tmp_path):
    """Lesson 13: what the daemon has is told by its label, not by a client that may be killed."""
    seen: list[str] = []
    reference = launcher.start(start_of(plan, tmp_path), lambda _: seen.append(daemon.calls[-1]))
    assert reference == DockerReference(CONTAINER_ID)
    assert daemon.containers[CONTAINER_ID]["State"]["Status"] == "running"
    # at the time of the record the last thing asked was not yet the start
    assert not seen[0].endswith("/start")
    assert daemon.calls[-1] == f"POST /containers/{CONTAINER_ID}/start"


def test_the_container_is_local_watched_by_an_init_and_never_restarted(launcher, daemon, plan, tmp_path):
    """Lessons 3, 37 and 48: an init reaps workers, no restart policy hides a crash, devices are a list."""
    launcher.start(start_of(plan, tmp_path), lambda _: None)
    created = daemon.containers[CONTAINER_ID]
    config, host_config = created["Config"], created["Config"]["HostConfig"]
    assert created["Name"] == "tasc-one"
    assert config["Labels"] == {"tasc.instance.nonce": "nonce-1", "tasc.instance.name": "one"}
    assert config["Cmd"][:3] == ["/models/snapshots/abc", "--served-model-name", "m"]
    assert host_config["PortBindings"] == {"8000/tcp": [{"HostIp": "127.0.0.1", "HostPort": "8000"}]}
    assert host_config["Binds"] == ["/data/models--org--m:/models:ro"]
    assert host_config["Init"] is True
    assert host_config["RestartPolicy"] == {"Name": "no"}
    assert host_config.get("AutoRemove", False) is False
    assert host_config["DeviceRequests"][0]["DeviceIDs"] == ["GPU-a", "GPU-b"]
    assert host_config["ShmSize"] == 16 * 1024**3


def test_rocm_devices_are_nodes_and_numeric_groups(launcher, daemon, plan, tmp_path):
    devices = ContainerDevices((), ("/dev/kfd", "/dev/dri/renderD129"), (109,), ("seccomp=unconfined",))
    launcher.start(start_of(plan, tmp_path, devices), lambda _: None)
    host_config = daemon.containers[CONTAINER_ID]["Config"]["HostConfig"]
    assert [item["PathOnHost"] for item in host_config["Devices"]] == ["/dev/kfd", "/dev/dri/renderD129"]
    assert host_config["GroupAdd"] == ["109"]
    assert host_config["SecurityOpt"] == ["seccomp=unconfined"]
    assert "DeviceRequests" not in host_config or not host_config["DeviceRequests"]


def test_running_stopped_absent_and_unknown(launcher, daemon, plan, tmp_path):
    record = record_of(launcher.start(start_of(plan, tmp_path), lambda _: None))
    assert launcher.liveness(record) is Liveness.ALIVE
    daemon.containers[CONTAINER_ID]["State"]["Status"] = "exited"
    assert launcher.liveness(record) is Liveness.GONE
    daemon.status["GET"] = 500
    assert launcher.liveness(record) is Liveness.UNKNOWN
    daemon.status.clear()
    daemon.containers.clear()
    assert launcher.liveness(record) is Liveness.GONE


def test_a_daemon_that_is_down_is_unknown_and_keeps_the_lease(plan, tmp_path):
    launcher = DockerLauncher(f"unix://{tmp_path}/nobody.sock")
    record = record_of(DockerReference(CONTAINER_ID))
    assert launcher.liveness(record) is Liveness.UNKNOWN
    assert launcher.stop(record, 1000) is StopOutcome.UNREACHABLE
    assert launcher.find("nonce-1") is None
    with pytest.raises(InstallError, match="the docker daemon does not answer"):
        launcher.install(plan)
    gc.collect()  # a socket that was dropped unclosed would be told of here


def test_out_of_memory_is_told_by_the_containers_state(launcher, daemon, plan, tmp_path):
    """Lesson 37: the cause is kept because the container is not removed at its end."""
    record = record_of(launcher.start(start_of(plan, tmp_path), lambda _: None))
    daemon.containers[CONTAINER_ID]["State"] = {"Status": "exited", "ExitCode": 137, "OOMKilled": True}
    daemon.logs = b"loading\nkilled\n"
    assert launcher.exit_status(record) == ExitStatus(None, "SIGKILL", out_of_memory=True)
    assert launcher.log_tail(record, tmp_path / "unused", 4096) == "loading\nkilled\n"


def test_a_container_with_another_nonce_is_left_alone(launcher, daemon, plan, tmp_path):
    record = record_of(launcher.start(start_of(plan, tmp_path), lambda _: None), nonce="another")
    assert launcher.liveness(record) is Liveness.GONE
    assert launcher.stop(record, 1000) is StopOutcome.ABSENT
    assert daemon.containers[CONTAINER_ID]["State"]["Status"] == "running"


def test_a_stop_is_gentle_before_it_removes(launcher, daemon, plan, tmp_path):
    """Lesson 3: a forced removal leaves workers behind."""
    record = record_of(launcher.start(start_of(plan, tmp_path), lambda _: None))
    assert launcher.stop(record, 2500) is StopOutcome.STOPPED
    assert daemon.calls[-2:] == [f"POST /containers/{CONTAINER_ID}/stop", f"DELETE /containers/{CONTAINER_ID}"]
    assert daemon.containers == {}


def test_a_refused_start_leaves_no_container(launcher, daemon, plan, tmp_path):
    daemon.status["POST /containers/" + CONTAINER_ID] = 500
    with pytest.raises(SpawnError, match="docker refused the container"):
        launcher.start(start_of(plan, tmp_path), lambda _: None)
    assert daemon.containers == {}


def test_a_container_of_a_dead_launcher_is_found_by_its_label(launcher, daemon, plan, tmp_path):
    """Lesson 9: labels and reconciliation find orphans."""
    launcher.start(start_of(plan, tmp_path), lambda _: None)
    assert launcher.find("nonce-1") == DockerReference(CONTAINER_ID)
    assert launcher.find("nonce-2") is None


def test_an_image_that_is_missing_is_pulled_or_refused_by_name(launcher, daemon, plan):
    daemon.images.clear()
    launcher.install(plan)
    assert daemon.images == {IMAGE}
    daemon.images.clear()
    daemon.status["POST /images/create"] = 404
    with pytest.raises(InstallError, match=rf"{IMAGE}: the image cannot be pulled"):
        launcher.install(plan)


REAL_SOCKET = "/var/run/docker.sock"


def _real_daemon() -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(REAL_SOCKET)
        except OSError:
            return False
    return True


@pytest.mark.skipif(not _real_daemon(), reason=f"no docker daemon listens on {REAL_SOCKET}, or we may not use it")
def test_a_real_daemon_says_for_sure_that_it_has_no_such_container(monkeypatch):
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    launcher = DockerLauncher()
    record = record_of(DockerReference("0" * 64), nonce="tasc-test-of-nothing")
    assert launcher.liveness(record) is Liveness.GONE
    assert launcher.find("tasc-test-of-nothing") is None
    assert launcher.stop(record, 1000) is StopOutcome.ABSENT
