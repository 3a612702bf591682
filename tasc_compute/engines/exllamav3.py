"""exllamav3 1.6.5 served by TabbyAPI e632af4.

TabbyAPI has no console script: it is ``python3 main.py`` in a checkout, so the recipe's binary is that ``main.py`` and
the plan's working directory its folder. Every flag takes a value. ``--model-dir`` is the *parent* folder and
``--model-name`` the folder in it, which is also the served name. A busy port silently becomes port + 1, so the
listener must be proved. Source: TabbyAPI's configuration model and start-up code at the pinned commit.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Final

from tasc_compute.contracts import (
    Accelerator,
    EngineId,
    EngineRuntimeKind,
    EngineSupport,
    HealthCheck,
    HostPlatform,
    HostProfile,
    LaunchPlan,
    LaunchRequest,
    NotSupported,
    PortBinding,
    Supported,
)
from tasc_compute.engines.base import (
    EVERY_INTERFACE,
    LOOPBACK,
    Argument,
    EngineSpec,
    Flag,
    Knob,
    KnobValue,
    Probes,
    Spelling,
    command,
    container_model,
    spell,
)

_BIT_PAIR: Final = re.compile(r"[2-8],[2-8]")
_CACHE_PAGE_TOKENS: Final = 256
IMAGE: Final = "ghcr.io/theroyallab/tabbyapi:cu13"


def cache_mode(value: KnobValue) -> str | None:
    """TabbyAPI's name of a cache type: FP16, Q8, Q6, Q4, or a pair of bits for keys and values; ``None`` for others."""
    text = str(value).upper()
    return text if text in {"FP16", "Q8", "Q6", "Q4"} or _BIT_PAIR.fullmatch(text) else None


SPELLING: Final = {
    # a switch with a value: the count is that of the visible devices
    Knob.TENSOR_PARALLEL: Spelling(Flag("--tensor-parallel"), translate=lambda _: "true"),
    Knob.MAX_CONCURRENT_REQUESTS: Spelling(Flag("--max-batch-size")),
    Knob.KV_CACHE_DTYPE: Spelling(Flag("--cache-mode"), translate=cache_mode),
    Knob.TOOL_CALL_PARSER: Spelling(Flag("--tool-format")),
}

MISSING: Final = {
    Knob.PIPELINE_PARALLEL: "exllamav3 splits layers over the visible devices by itself",
    Knob.MEMORY_FRACTION: "TabbyAPI takes GB per device (--gpu-split) or MB kept free (--autosplit-reserve)",
    Knob.DTYPE: "the type is in the model folder",
    Knob.QUANTIZATION: "the quantization is in the model folder",
    Knob.TRUST_REMOTE_CODE: "exllamav3 runs no code of a model",
    Knob.REASONING_PARSER: "TabbyAPI has only --reasoning with start and end tokens",
}


def supports(host: HostProfile) -> EngineSupport:
    """CUDA only; there is no ROCm build."""
    if host.platform is HostPlatform.DARWIN:
        return NotSupported("exllamav3 needs CUDA; use llamacpp or mlx here")
    if host.accelerator is not Accelerator.CUDA:
        return NotSupported(
            f"exllamav3 needs CUDA (compute capability 8.0); this host computes with {host.accelerator}"
        )
    docker = (EngineRuntimeKind.DOCKER,) if host.docker_gpu else ()
    return Supported((EngineRuntimeKind.PROCESS, *docker))


def image(host: HostProfile) -> str | None:
    """TabbyAPI's CUDA 13 image."""
    return IMAGE if host.accelerator is Accelerator.CUDA else None


def _override(request: LaunchRequest, knob: Knob) -> tuple[Argument, ...] | str | None:
    if knob is not Knob.MAX_CONTEXT_LENGTH:
        return None
    length = request.options.max_context_length
    # the cache holds all requests' tokens and must hold one full context, in whole pages
    cache = -(-length // _CACHE_PAGE_TOKENS) * _CACHE_PAGE_TOKENS
    return (Argument(Flag("--max-seq-len"), (str(length),)), Argument(Flag("--cache-size"), (str(cache),)))


def plan(request: LaunchRequest) -> LaunchPlan:
    """The launch plan of one TabbyAPI server."""
    docker = request.runtime is EngineRuntimeKind.DOCKER
    mount, inside = container_model(request.model_path, is_file=False)
    model = PurePosixPath(inside if docker else request.model_path)
    knobs, _ = spell(SPEC, request)
    arguments = (
        Argument(Flag("--model-dir"), (str(model.parent),)),
        Argument(Flag("--model-name"), (model.name,)),
        Argument(Flag("--host"), (EVERY_INTERFACE if docker else LOOPBACK,)),
        Argument(Flag("--port"), (str(request.port),)),
        Argument(Flag("--disable-auth"), ("true",)),
        *knobs,
    )
    argv = command(arguments, request.extra_args)
    script = PurePosixPath(request.binary)
    return LaunchPlan(
        kind=request.runtime,
        # the image's entry point is python3
        argv=("main.py", *argv) if docker else ("python3", script.name, *argv),
        env=dict(request.env),
        ports=(PortBinding(request.port, request.port),),
        mounts=(mount,) if docker else (),
        devices=request.devices,
        health=SPEC.health,
        image=(request.docker_image or image(request.host)) if docker else None,
        workdir=None if docker else str(script.parent),
    )


def _refusals(request: LaunchRequest) -> tuple[str, ...]:
    reasons = []
    if request.runtime is EngineRuntimeKind.PROCESS and not request.binary.endswith("/main.py"):
        reasons.append("TabbyAPI has no executable; name the main.py of its checkout as the recipe's binary")
    folder = PurePosixPath(request.model_path).name
    if request.served_model_name != folder:
        reasons.append(f"TabbyAPI serves a model under its folder's name; the recipe's served name must be {folder}")
    return tuple(reasons)


SPEC: Final = EngineSpec(
    id=EngineId.EXLLAMAV3,
    health=HealthCheck("/health", 900_000, 2_000),
    probes=Probes("/health", timeout_ms=5_000, lists_served_name=True),
    metrics={},
    default_binary="main.py",
    default_port=5000,
    stop_grace_ms=20_000,
    supports=supports,
    plan=plan,
    image=image,
    spelling=SPELLING,
    missing=MISSING,
    override=_override,
    logs_content=frozenset(
        {
            "--log-prompt",
            "--log-generation-params",
            "--log-requests",
            "TABBY_LOGGING_LOG_PROMPT",
            "TABBY_LOGGING_LOG_GENERATION_PARAMS",
            "TABBY_LOGGING_LOG_REQUESTS",
        }
    ),
    refusals=_refusals,
)
