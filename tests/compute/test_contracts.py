"""Contracts in JSON: the published names, round trips, and strict reading."""

from __future__ import annotations

import dataclasses
import json

import pytest

from tasc_compute import contracts as c
from tasc_compute.codec import dumps, from_json, json_name, loads, to_json
from tasc_compute.errors import ContractError

HOST = c.HostProfile("self", c.HostPlatform.LINUX, c.HostArch.ARM64, c.Accelerator.CUDA, True, False, True, True, 1)
HEALTH = c.HealthCheck("/health", 600_000, 2_000)
PLAN = c.LaunchPlan(
    kind=c.EngineRuntimeKind.DOCKER,
    argv=("--model", "/models/m"),
    env={"A": "1"},
    ports=(c.PortBinding(8000, 8001),),
    mounts=(c.Mount("/data/m", "/models/m", True),),
    devices=("GPU-a",),
    health=HEALTH,
    image="image:1",
)
REQUEST = c.LaunchRequest(
    engine=c.EngineId.VLLM,
    host=HOST,
    runtime=c.EngineRuntimeKind.DOCKER,
    devices=("GPU-a",),
    port=8000,
    model_path="/data/m",
    served_model_name="m",
    options=c.ServingOptions(memory_fraction=0.9, kv_cache_dtype="fp8"),
    extra_args=("--x",),
    env={},
    docker_image=None,
    binary="vllm",
)
RECORD = c.InstanceRecord(
    name="one",
    node_id="self",
    engine=c.EngineId.LLAMACPP,
    recipe_id="one",
    runtime=c.EngineRuntimeKind.PROCESS,
    ref=c.ProcessReference(42, "boot:7"),
    port=8081,
    devices=(),
    nonce="n",
    started_at="2026-01-02T03:04:05.678Z",
    ready_deadline_at="2026-01-02T03:14:05.678Z",
)
GPU = c.AcceleratorInfo(
    "GPU-a",
    0,
    c.DeviceVendor.NVIDIA,
    "GB10",
    c.Accelerator.CUDA,
    130_000_000_000,
    1,
    True,
    None,
    35.5,
    None,
    None,
    "580",
)
SNAPSHOT = c.DeviceSnapshot(
    sampled_at="2026-01-02T03:04:05.678Z",
    accelerators=(GPU,),
    host=c.HostInfo("cpu", 2, 8, 4, None, c.HostPlatform.LINUX, c.HostArch.X64, "6.1", 12.5),
    storage=(c.VolumeInfo("/", 10, 5, "ext4", None, None),),
    thermals=(c.ThermalInfo("Package", 40.0, "cpu"),),
    capabilities=(c.TelemetryField.MEMORY, c.TelemetryField.HOST_MEMORY),
)


@pytest.mark.parametrize("value", [HOST, HEALTH, PLAN, REQUEST, RECORD, GPU, SNAPSHOT])
def test_every_record_survives_a_round_trip(value):
    assert loads(type(value), dumps(value)) == value


def test_json_has_the_published_names():
    assert to_json(RECORD) == {
        "name": "one",
        "nodeId": "self",
        "engine": "llamacpp",
        "recipeId": "one",
        "runtime": "process",
        "ref": {"kind": "process", "pid": 42, "startToken": "boot:7"},
        "port": 8081,
        "devices": [],
        "nonce": "n",
        "startedAt": "2026-01-02T03:04:05.678Z",
        "readyDeadlineAt": "2026-01-02T03:14:05.678Z",
    }
    shown = to_json(SNAPSHOT)
    assert isinstance(shown, dict)
    assert list(shown["accelerators"][0]) == [
        "id",
        "index",
        "vendor",
        "name",
        "accelerator",
        "memoryTotalBytes",
        "memoryUsedBytes",
        "unifiedMemory",
        "utilizationPct",
        "temperatureC",
        "powerWatts",
        "powerLimitWatts",
        "driver",
    ]
    assert shown["capabilities"] == ["memory", "hostMemory"]


def test_an_optional_field_is_left_out_and_a_nullable_one_is_null():
    plan = to_json(PLAN)
    request = to_json(REQUEST)
    assert isinstance(plan, dict)
    assert isinstance(request, dict)
    assert plan["image"] == "image:1"
    assert "workdir" not in plan
    assert plan["mounts"] == [{"from": "/data/m", "to": "/models/m", "readOnly": True}]
    assert request["dockerImage"] is None


@pytest.mark.parametrize(
    "reference",
    [
        None,
        c.ProcessReference(1, None),
        c.DockerReference("abc"),
        c.RemoteReference("node-2", "one"),
        c.PinnedReference("speech"),
    ],
)
def test_every_kind_of_reference_is_told_apart(reference):
    record = dataclasses.replace(RECORD, ref=reference)
    assert loads(c.InstanceRecord, dumps(record)) == record


@pytest.mark.parametrize(
    "failure",
    [
        c.Unsupported(c.EngineId.MLX, "why"),
        c.AlreadyRunning("one"),
        c.NoCapacity(2, 1),
        c.InstallFailed(c.EngineId.VLLM, "what"),
        c.SpawnFailed("what"),
        c.ExitedEarly(None, "SIGKILL", "tail"),
        c.UnhealthyTimeout(1000, "tail"),
        c.Cancelled(),
    ],
)
def test_every_failure_survives_a_round_trip(failure):
    assert from_json(type(failure), to_json(failure)) == failure


def test_support_is_told_by_ok():
    assert to_json(c.Supported((c.EngineRuntimeKind.PROCESS,))) == {"runtimes": ["process"], "ok": True}
    assert to_json(c.NotSupported("why")) == {"reason": "why", "ok": False}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"extra": 1}, "InstanceRecord.extra: is not a field of this record"),
        ({"port": "8081"}, "InstanceRecord.port: must be of type int"),
        ({"port": True}, "InstanceRecord.port: must be of type int"),
        ({"port": None}, "InstanceRecord.port: must be of type int"),
        ({"engine": "ollama"}, "InstanceRecord.engine: must be one of vllm, sglang, llamacpp, mlx, exllamav3"),
        ({"devices": "GPU-a"}, "InstanceRecord.devices: must be a list"),
        ({"devices": [1]}, "InstanceRecord.devices[0]: must be of type str"),
        ({"ref": {"kind": "ssh"}}, "InstanceRecord.ref: is none of the known kinds"),
        ({"ref": {"kind": "docker"}}, "InstanceRecord.ref.container: is missing"),
        ({"ref": 7}, "InstanceRecord.ref: is none of the known kinds"),
    ],
)
def test_reading_is_strict_and_names_the_field(change, says):
    content = json.loads(dumps(RECORD)) | change
    with pytest.raises(ContractError) as caught:
        from_json(c.InstanceRecord, content)
    assert str(caught.value).startswith(says)


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b"{", b"\xff", b"[" * 100_000])
def test_what_is_no_record_is_refused(data):
    with pytest.raises(ContractError):
        loads(c.InstanceRecord, data)


def test_a_missing_field_is_named():
    content = json.loads(dumps(RECORD))
    del content["nonce"]
    with pytest.raises(ContractError, match=r"InstanceRecord\.nonce: is missing"):
        from_json(c.InstanceRecord, content)


def test_names_are_camel_case():
    assert [json_name(n) for n in ("a", "memory_total_bytes", "from_", "utilization_pct")] == [
        "a",
        "memoryTotalBytes",
        "from",
        "utilizationPct",
    ]


def test_what_is_no_contract_has_no_json():
    with pytest.raises(ContractError):
        to_json(object())
