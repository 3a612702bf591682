"""The launch requests whose plans are kept as golden files: each engine on each host, each knob, each pair of knobs."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator
from typing import Any  # the golden form is plain JSON

from tasc_compute.codec import to_json
from tasc_compute.contracts import (
    Accelerator,
    EngineId,
    EngineRuntimeKind,
    HostArch,
    HostPlatform,
    HostProfile,
    LaunchRequest,
    NotSupported,
    ServingOptions,
)
from tasc_compute.engines import engine
from tasc_compute.planning import dropped_knobs, plan_launch, shown_command
from tasc_compute.visibility import DevicePlace


def host(accelerator: Accelerator, **changes: Any) -> HostProfile:
    """A Linux x64 host without docker, changed."""
    base = HostProfile("self", HostPlatform.LINUX, HostArch.X64, accelerator, False, False, False, False, 2)
    return dataclasses.replace(base, **changes)


HOSTS = {
    "cuda": host(Accelerator.CUDA, docker=True, docker_gpu=True),
    "cuda-no-docker": host(Accelerator.CUDA),
    "cuda-docker-without-gpu": host(Accelerator.CUDA, docker=True),
    "rocm": host(Accelerator.ROCM, docker=True, docker_gpu=True),
    "xpu": host(Accelerator.XPU, docker=True, docker_gpu=True),
    "metal": host(
        Accelerator.METAL, platform=HostPlatform.DARWIN, arch=HostArch.ARM64, unified_memory=True, device_count=1
    ),
    "cpu": host(Accelerator.CPU, device_count=0),
    "cpu-docker": host(Accelerator.CPU, docker=True, device_count=0),
    "gb10": host(
        Accelerator.CUDA, arch=HostArch.ARM64, unified_memory=True, docker=True, docker_gpu=True, device_count=1
    ),
    "wsl": host(Accelerator.CUDA, wsl=True, docker=True, docker_gpu=True),
    "windows": host(Accelerator.CUDA, platform=HostPlatform.WIN32),
}

DEVICES = {
    Accelerator.CUDA: ("GPU-6d2a3c1e-0b7f-5f0e-9f5a-3b8f1c7a9e21", "GPU-35fa9bdb-0b7f-5f0e-9f5a-3b8f1c7a9e22"),
    Accelerator.ROCM: ("GPU-0cee36ddc4255115", "GPU-0cee36ddc4255116"),
    Accelerator.XPU: ("00000000-0000-0023-0000-000000000001", "00000000-0000-0024-0000-000000000001"),
    Accelerator.METAL: ("metal:0",),
    Accelerator.CPU: (),
}

PLACES = {
    "GPU-0cee36ddc4255115": DevicePlace(1, ("/dev/dri/renderD129",), (109,)),
    "GPU-0cee36ddc4255116": DevicePlace(0, ("/dev/dri/renderD128",), (109,)),
    "00000000-0000-0023-0000-000000000001": DevicePlace(0, ("/dev/dri/renderD128",), (110,)),
    "00000000-0000-0024-0000-000000000001": DevicePlace(1, ("/dev/dri/renderD129",), (110,)),
}

KNOBS: dict[str, int | float | str | bool] = {
    "tensor_parallel": 2,
    "pipeline_parallel": 2,
    "max_context_length": 8192,
    "memory_fraction": 0.85,
    "max_concurrent_requests": 16,
    "kv_cache_dtype": "fp8_e5m2",
    "dtype": "bfloat16",
    "quantization": "awq",
    "trust_remote_code": True,
    "tool_call_parser": "qwen3_coder",
    "reasoning_parser": "qwen3",
}

KV_CACHE = {EngineId.LLAMACPP: "q8_0", EngineId.EXLLAMAV3: "Q8"}
"""A cache type that the engine knows, where it does not know the common one."""

_EXPLANATION_INDENT = 10
_EXPLANATION, _FLAG = re.compile(r"\s{2,}(?=[^\s-])"), re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")

BINARIES = {EngineId.EXLLAMAV3: "/opt/tabbyAPI/main.py"}


def request(
    engine_id: EngineId, profile: HostProfile, runtime: EngineRuntimeKind, options: dict[str, Any], **changes: Any
) -> LaunchRequest:
    """A request for a small model with the given knobs."""
    file = "/data/models/qwen3-8b/qwen3-8b.gguf" if engine_id is EngineId.LLAMACPP else "/data/models/qwen3-8b"
    spec = engine(engine_id)
    base = LaunchRequest(
        engine=engine_id,
        host=profile,
        runtime=runtime,
        devices=DEVICES[profile.accelerator][: max(profile.device_count, 0)],
        port=spec.default_port,
        model_path=file,
        served_model_name="qwen3-8b",
        options=ServingOptions(**options),
        extra_args=(),
        env={},
        docker_image=None,
        binary=BINARIES.get(engine_id, spec.default_binary),
    )
    return dataclasses.replace(base, **changes)


def knobs(engine_id: EngineId, *names: str) -> dict[str, Any]:
    """Values of some knobs that the engine knows."""
    values = {name: KNOBS[name] for name in names}
    if "kv_cache_dtype" in values:
        values["kv_cache_dtype"] = KV_CACHE.get(engine_id, values["kv_cache_dtype"])
    return values


def requests(engine_id: EngineId) -> Iterator[tuple[str, LaunchRequest]]:
    """Every golden request of an engine, by its name."""
    first: tuple[HostProfile, EngineRuntimeKind] | None = None
    for name, profile in HOSTS.items():
        support = engine(engine_id).supports(profile)
        if isinstance(support, NotSupported):
            continue
        for runtime in support.runtimes:
            first = first or (profile, runtime)
            yield f"{name}/{runtime}/no knobs", request(engine_id, profile, runtime, {})
            yield f"{name}/{runtime}/all knobs", request(engine_id, profile, runtime, knobs(engine_id, *KNOBS))
    assert first is not None
    for knob in KNOBS:
        yield f"one knob: {knob}", request(engine_id, *first, knobs(engine_id, knob))
    for pair in itertools.combinations(KNOBS, 2):
        yield f"two knobs: {', '.join(pair)}", request(engine_id, *first, knobs(engine_id, *pair))


def engine_flags(engine_id: EngineId) -> set[str]:
    """Every flag that a golden plan hands to the engine itself; docker's own are not in a plan's arguments."""
    return {
        token for _, item in requests(engine_id) for token in plan_launch(item, PLACES).argv if token.startswith("-")
    }


def flags_in_help(text: str) -> set[str]:
    """The flags that a ``--help`` text defines: those before the explanation in little indented lines that begin so."""
    lines = [line.strip() for line in text.splitlines() if len(line) - len(line.lstrip()) < _EXPLANATION_INDENT]
    heads = [_EXPLANATION.split(line, maxsplit=1)[0] for line in lines if line.startswith("-")]
    return {flag for head in heads for flag in _FLAG.findall(head)}


def golden(engine_id: EngineId) -> dict[str, Any]:
    """The golden form of an engine: where it runs, and every plan."""
    supports: dict[str, Any] = {}
    for name, profile in HOSTS.items():
        support = engine(engine_id).supports(profile)
        supports[name] = support.reason if isinstance(support, NotSupported) else list(support.runtimes)
    plans = {}
    for name, item in requests(engine_id):
        plan = plan_launch(item, PLACES)
        shown: dict[str, Any] = {"command": shown_command(plan, item, PLACES)}
        if plan.env:
            shown["env"] = dict(plan.env)
        if plan.workdir:
            shown["workdir"] = plan.workdir
        if dropped := dropped_knobs(item):
            shown["dropped"] = [str(drop.knob) for drop in dropped]
        plans[name] = shown
    metrics = {str(metric): list(names) for metric, names in engine(engine_id).metrics.items()}
    return {"health": to_json(engine(engine_id).health), "metrics": metrics, "supports": supports, "plans": plans}
