"""vLLM 0.26.0, ``vllm serve``.

Flags, aliases and closed lists are of that build's ``vllm serve --help=all``. The model is the first argument and
never follows ``--served-model-name``, which takes any number of values. The parser takes ``_`` for ``-`` and has a
negation for every switch.
"""

from __future__ import annotations

from typing import Final

from tasc_compute.contracts import (
    Accelerator,
    CanonicalMetric,
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
    Probes,
    Spelling,
    command,
    container_model,
    spell,
)

KV_CACHE_TYPES: Final = frozenset(
    {
        "bfloat16", "float16", "fp8", "fp8_ds_mla", "fp8_e4m3", "fp8_e5m2", "fp8_inc", "fp8_per_token_head",
        "int4_per_token_head", "int8_per_token_head", "nvfp4", "turboquant_3bit_nc", "turboquant_4bit_nc",
        "turboquant_k3v4_nc", "turboquant_k8v4",
    }
)  # fmt: skip
DTYPES: Final = frozenset({"bfloat16", "float", "float16", "float32", "half"})

SPELLING: Final = {
    Knob.TENSOR_PARALLEL: Spelling(Flag("--tensor-parallel-size", ("-tp",))),
    Knob.PIPELINE_PARALLEL: Spelling(Flag("--pipeline-parallel-size", ("-pp",))),
    Knob.MAX_CONTEXT_LENGTH: Spelling(Flag("--max-model-len")),
    Knob.MEMORY_FRACTION: Spelling(Flag("--gpu-memory-utilization")),
    Knob.MAX_CONCURRENT_REQUESTS: Spelling(Flag("--max-num-seqs")),
    Knob.KV_CACHE_DTYPE: Spelling(Flag("--kv-cache-dtype"), allowed=KV_CACHE_TYPES),
    Knob.DTYPE: Spelling(Flag("--dtype"), allowed=DTYPES),
    Knob.QUANTIZATION: Spelling(Flag("--quantization", ("-q",))),
    Knob.TRUST_REMOTE_CODE: Spelling(Flag("--trust-remote-code"), switch=True),
    Knob.TOOL_CALL_PARSER: Spelling(Flag("--tool-call-parser"), companion=Flag("--enable-auto-tool-choice")),
    Knob.REASONING_PARSER: Spelling(Flag("--reasoning-parser")),
}

IMAGES: Final = {
    Accelerator.CUDA: "vllm/vllm-openai:v0.26.0",
    Accelerator.ROCM: "rocm/vllm:latest",
}
"""ROCm's own image has no tag for a vLLM release; a recipe pins one with ``docker_image``."""

CPU_MEMORY: Final = "on a CPU the cache is sized by VLLM_CPU_KVCACHE_SPACE (GiB), set in the recipe's env"


def supports(host: HostProfile) -> EngineSupport:
    """CUDA as process or container; ROCm as container; XPU and CPU as process on Linux."""
    docker = (EngineRuntimeKind.DOCKER,) if host.docker_gpu else ()
    if host.platform is HostPlatform.DARWIN:
        return NotSupported("vLLM has no Metal build; use llamacpp or mlx")
    if host.platform is HostPlatform.WIN32 and not host.wsl:
        return NotSupported("vLLM runs on Windows only inside WSL")
    if host.accelerator is Accelerator.ROCM:
        if docker:
            return Supported(docker)
        return NotSupported("vLLM on ROCm is launched from its image; docker with GPU access is missing")
    if host.accelerator is Accelerator.CUDA:
        return Supported((EngineRuntimeKind.PROCESS, *docker))
    return Supported((EngineRuntimeKind.PROCESS,))


def image(host: HostProfile) -> str | None:
    """The image for a host's accelerator; none for XPU and CPU."""
    return IMAGES.get(host.accelerator)


def _override(request: LaunchRequest, knob: Knob) -> tuple[Argument, ...] | str | None:
    if knob is Knob.MEMORY_FRACTION and request.host.accelerator is Accelerator.CPU:
        return CPU_MEMORY
    return None


def plan(request: LaunchRequest) -> LaunchPlan:
    """The launch plan of one ``vllm serve``; the image's entry point already is that command."""
    docker = request.runtime is EngineRuntimeKind.DOCKER
    mount, inside = container_model(request.model_path, is_file=request.model_path.endswith(".gguf"))
    knobs, _ = spell(SPEC, request)
    arguments = (
        Argument(Flag("--model"), (inside if docker else request.model_path,), positional=True),
        Argument(Flag("--served-model-name"), (request.served_model_name,)),
        Argument(Flag("--host"), (EVERY_INTERFACE if docker else LOOPBACK,)),
        Argument(Flag("--port"), (str(request.port),)),
        *knobs,
    )
    argv = command(arguments, request.extra_args)
    return LaunchPlan(
        kind=request.runtime,
        argv=argv if docker else (request.binary, "serve", *argv),
        env=dict(request.env),
        ports=(PortBinding(request.port, request.port),),
        mounts=(mount,) if docker else (),
        devices=request.devices,
        health=SPEC.health,
        image=(request.docker_image or image(request.host)) if docker else None,
    )


SPEC: Final = EngineSpec(
    id=EngineId.VLLM,
    health=HealthCheck("/health", 1_800_000, 2_000),
    probes=Probes("/health", timeout_ms=5_000, lists_served_name=True),
    metrics={
        CanonicalMetric.REQUESTS_RUNNING: ("vllm:num_requests_running",),
        CanonicalMetric.REQUESTS_WAITING: ("vllm:num_requests_waiting",),
        CanonicalMetric.KV_CACHE_UTILIZATION: ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
        CanonicalMetric.PROMPT_TOKENS_TOTAL: ("vllm:prompt_tokens_total",),
        CanonicalMetric.GENERATION_TOKENS_TOTAL: ("vllm:generation_tokens_total",),
    },
    default_binary="vllm",
    default_port=8000,
    stop_grace_ms=30_000,
    supports=supports,
    plan=plan,
    image=image,
    spelling=SPELLING,
    override=_override,
    logs_content=frozenset(
        {
            "--enable-log-requests",
            "--enable-log-outputs",
            "--enable-log-deltas",
            "VLLM_DEBUG_LOG_API_SERVER_RESPONSE",
            "VLLM_LOGGING_CONFIG_PATH",
        }
    ),
    rocm_hip_only=True,
)
