"""Launch, stop and supervise through the docker launcher: a small daemon, and a server where the container's would be."""

from __future__ import annotations

import dataclasses
import http.server
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("docker", reason="the extra docker is not installed")

from tasc_compute.contracts import (
    Accelerator,
    DockerReference,
    EngineId,
    EngineRuntimeKind,
    ExitedEarly,
    InstallFailed,
    InstanceState,
    LaunchFailure,
    NoCapacity,
    SpawnFailed,
)
from tasc_compute.errors import LaunchFailed
from tasc_compute.launchers.base import StopOutcome
from tasc_compute.launchers.docker import DockerLauncher
from tasc_compute.lifecycle import Compute, launch, stop, supervise
from tasc_compute.reservations import LaunchOrder
from tasc_compute.state import Liveness
from tests.support.fake_docker import CONTAINER_ID, FakeDocker

IMAGE = "vllm/vllm-openai:v0.26.0"
GPU = "GPU-6d2a3c1e-0b7f-5f0e-9f5a-3b8f1c7a9e21"


class Published:
    """What answers on the port that the container publishes."""

    status = 200

    def __init__(self) -> None:
        published = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                data = json.dumps({"data": [{"id": "tiny"}]}).encode()
                self.send_response(published.status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler, bind_and_activate=False)
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))

    def serve(self, port: int) -> None:
        """Listen from now on."""
        self.server.server_address = ("127.0.0.1", port)
        self.server.server_bind()
        self.server.server_activate()
        self._thread.start()

    def close(self) -> None:
        """Stop, where it was started."""
        if self._thread.is_alive():
            self.server.shutdown()
            self._thread.join(60)
        self.server.server_close()


class Box:
    """The daemon, the compute layer that uses it, and an order for one GPU."""

    def __init__(self, daemon: FakeDocker, compute: Compute, order: LaunchOrder, published: Published) -> None:
        self.daemon, self.compute, self.order, self.published = daemon, compute, order, published

    def failure(self, **changes: object) -> LaunchFailed:
        """The failure of a launch."""
        with pytest.raises(LaunchFailed) as caught:
            launch(dataclasses.replace(self.order, **changes), self.compute)
        return caught.value


@pytest.fixture
def box(tmp_path: Path, compute: Compute, make_order: Callable[..., LaunchOrder]) -> Iterator[Box]:
    order = make_order(engine=EngineId.VLLM)
    cuda = dataclasses.replace(
        order.request.host, accelerator=Accelerator.CUDA, docker=True, docker_gpu=True, device_count=1
    )
    request = dataclasses.replace(order.request, host=cuda, runtime=EngineRuntimeKind.DOCKER)
    order = dataclasses.replace(order, request=request, device_count=1, device_pool=(GPU,))
    published = Published()
    with FakeDocker(tmp_path / "docker.sock", {IMAGE}) as daemon:
        launcher = DockerLauncher(f"unix://{tmp_path}/docker.sock")
        yield Box(
            daemon, dataclasses.replace(compute, launchers={EngineRuntimeKind.DOCKER: launcher}), order, published
        )
        published.close()


def kind_of(failed: LaunchFailed) -> LaunchFailure:
    assert not failed.record_kept
    return failed.failure


def test_an_image_that_cannot_be_pulled_is_install_failed_and_reserves_nothing(box):
    box.daemon.images.clear()
    box.daemon.status["POST /images/create"] = 404
    assert kind_of(box.failure()) == InstallFailed(
        EngineId.VLLM, f"{IMAGE}: the image cannot be pulled (status 404) -> docker pull {IMAGE}"
    )
    assert list(box.compute.store.folder.iterdir()) == []
    assert box.daemon.containers == {}


def test_a_daemon_that_is_down_is_install_failed(box, tmp_path):
    nobody = DockerLauncher(f"unix://{tmp_path}/nobody.sock")
    box.compute = dataclasses.replace(box.compute, launchers={EngineRuntimeKind.DOCKER: nobody})
    assert kind_of(box.failure()) == InstallFailed(
        EngineId.VLLM, "the docker daemon does not answer -> start docker, then try again"
    )
    assert box.compute.store.names() == ()


def test_a_container_that_docker_refuses_is_spawn_failed_and_gives_the_lease_back(box):
    box.daemon.status["POST /containers/create"] = 500
    assert kind_of(box.failure()) == SpawnFailed(
        "docker refused the container (status 500) -> docker events, docker info"
    )
    assert box.compute.store.names() == ()


def test_a_container_that_ran_out_of_memory_at_start_is_exited_early_with_its_log(box):
    """Lessons 36 and 37: the container's own state says why, and it is removed only after it was read."""
    box.daemon.on_start = lambda state: state.update(Status="exited", ExitCode=137, OOMKilled=True)
    box.daemon.logs = b"loading weights\n"
    failed = box.failure()
    assert kind_of(failed) == ExitedEarly(None, "SIGKILL", "loading weights\n")
    assert failed.detail == "the container was ended for want of memory"
    assert box.daemon.containers == {}
    assert box.compute.store.names() == ()


def test_a_launched_container_is_ready_holds_its_gpu_and_leaves_nothing_after_its_stop(box):
    box.daemon.on_start = lambda _: box.published.serve(box.order.request.port)
    record = launch(box.order, box.compute)
    assert (record.ref, record.devices) == (DockerReference(CONTAINER_ID), (GPU,))
    assert box.compute.store.read("one") == record
    assert supervise(box.compute).observations["one"].state is InstanceState.READY
    assert box.failure(name="two").failure == NoCapacity(1, 0)
    assert stop("one", box.compute) is StopOutcome.STOPPED
    assert box.daemon.containers == {}
    assert box.compute.store.names() == ()


def test_a_container_whose_gpus_vanished_is_unhealthy_though_it_runs_and_keeps_its_lease(box):
    """Lesson 26: docker goes on saying running; only the engine's own answer tells."""
    box.daemon.on_start = lambda _: box.published.serve(box.order.request.port)
    record = launch(box.order, box.compute)
    box.compute.store.write(dataclasses.replace(record, ready_deadline_at="2020-01-01T00:00:00.000Z"))
    known = supervise(box.compute).observations
    box.published.status = 503
    for _ in range(3):
        known = supervise(box.compute, known).observations
    assert box.daemon.containers[CONTAINER_ID]["State"]["Status"] == "running"
    assert box.compute.liveness(record) is Liveness.ALIVE
    assert known["one"].state is InstanceState.UNHEALTHY
    assert box.compute.store.names() == ("one",)
    assert stop("one", box.compute) is StopOutcome.STOPPED
