"""MLX-LM 0.31.3, ``mlx_lm.server``.

Its ``--max-tokens`` is the default completion cap, not a context length. ``/health`` answers 200 before the model is
loaded and after loading failed, and ``/v1/models`` is no better: readiness is one completed token (runs of the pinned
build). The server has no metrics and no served name; clients may say ``default_model``.
"""

from __future__ import annotations

from typing import Final

from tasc_compute.contracts import (
    Accelerator,
    EngineId,
    EngineRuntimeKind,
    EngineSupport,
    HealthCheck,
    HostArch,
    HostPlatform,
    HostProfile,
    LaunchPlan,
    LaunchRequest,
    NotSupported,
    PortBinding,
    Supported,
)
from tasc_compute.engines.base import LOOPBACK, Argument, EngineSpec, Flag, Knob, Probes, Spelling, command, spell

SPELLING: Final = {
    # the nearest equivalent: how many requests are decoded together
    Knob.MAX_CONCURRENT_REQUESTS: Spelling(Flag("--decode-concurrency")),
    Knob.TRUST_REMOTE_CODE: Spelling(Flag("--trust-remote-code"), switch=True),
}

MISSING: Final = {
    Knob.TENSOR_PARALLEL: "mlx_lm.server is distributed by mlx.launch, outside of it",
    Knob.PIPELINE_PARALLEL: "mlx_lm.server takes no count; --pipeline works under mlx.launch",
    Knob.MAX_CONTEXT_LENGTH: "mlx_lm.server has no context limit (--max-tokens caps completions)",
    Knob.MEMORY_FRACTION: "mlx_lm.server has no memory share; see --prompt-cache-bytes",
    Knob.KV_CACHE_DTYPE: "mlx_lm.server has no cache type",
    Knob.DTYPE: "the type is in the model folder",
    Knob.QUANTIZATION: "the quantization is in the model folder",
    Knob.TOOL_CALL_PARSER: "mlx_lm.server infers the format from the tokenizer",
    Knob.REASONING_PARSER: "mlx_lm.server infers the format from the tokenizer",
}


def supports(host: HostProfile) -> EngineSupport:
    """A process on Apple silicon, and with its CPU build on a Linux host that computes with its CPU."""
    if host.platform is HostPlatform.DARWIN and host.arch is HostArch.ARM64:
        return Supported((EngineRuntimeKind.PROCESS,))
    if host.platform is HostPlatform.LINUX and host.accelerator is Accelerator.CPU:
        return Supported((EngineRuntimeKind.PROCESS,))
    return NotSupported("MLX runs on Apple silicon, and with its CPU build on Linux hosts without a GPU")


def image(host: HostProfile) -> str | None:
    """There is no image."""
    del host
    return None


def plan(request: LaunchRequest) -> LaunchPlan:
    """The launch plan of one ``mlx_lm.server``; it is a process on any request, since there is no image."""
    knobs, _ = spell(SPEC, request)
    arguments = (
        Argument(Flag("--model"), (request.model_path,)),
        Argument(Flag("--host"), (LOOPBACK,)),
        Argument(Flag("--port"), (str(request.port),)),
        *knobs,
    )
    return LaunchPlan(
        kind=EngineRuntimeKind.PROCESS,
        argv=(request.binary, *command(arguments, request.extra_args)),
        env=dict(request.env),
        ports=(PortBinding(request.port, request.port),),
        mounts=(),
        devices=request.devices,
        health=SPEC.health,
    )


SPEC: Final = EngineSpec(
    id=EngineId.MLX,
    health=HealthCheck("/health", 300_000, 2_000),
    probes=Probes(
        "/health",
        timeout_ms=60_000,
        generative=True,
        completion_path="/v1/completions",
        completion_body='{"model":"default_model","prompt":"1","max_tokens":1,"temperature":0}',
    ),
    metrics={},
    default_binary="mlx_lm.server",
    default_port=8080,
    stop_grace_ms=10_000,
    supports=supports,
    plan=plan,
    image=image,
    spelling=SPELLING,
    missing=MISSING,
    logs_content=frozenset({"--log-level"}),  # at DEBUG it logs every request and answer
)
