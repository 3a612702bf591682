"""SGLang 0.5.16, ``sglang serve``.

Flags, aliases and closed lists are of that build's ``sglang serve --help``. Parser names differ from vLLM's, and a
plain "fp8" cache is rejected: such values are dropped and reported. ``/health`` generates one token and needs at least
a second, up to 20 s under load; ``/model_info`` is its passive twin. The image has no entry point.
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
    {"fp8_e5m2", "fp8_e4m3", "mxfp8", "bf16", "bfloat16", "nvfp4", "fp4_mx_block16", "fp4_e2m1"}
)
DTYPES: Final = frozenset({"half", "float16", "bfloat16", "float", "float32"})
QUANTIZATIONS: Final = frozenset(
    {
        "awq", "fp8", "mxfp8", "gptq", "marlin", "gptq_marlin", "awq_marlin", "bitsandbytes", "gguf", "modelopt",
        "modelopt_fp8", "modelopt_fp4", "nvfp4_online", "modelopt_mixed", "petit_nvfp4", "w8a8_int8", "w8a8_fp8",
        "moe_wna16", "w4afp8", "mxfp4", "auto-round", "auto-round-int8", "compressed-tensors", "modelslim", "mxfp_w4a8",
        "quark", "quark_int4fp8_moe", "quark_mxfp4", "mlx_q4", "mlx_q8", "unquant", "humming",
    }
)  # fmt: skip
TOOL_PARSERS: Final = frozenset(
    {
        "apertus2509", "cohere_command4", "deepseekv3", "deepseekv31", "deepseekv32", "deepseekv4", "glm", "glm45",
        "glm47", "gpt-oss", "kimi_k2", "lfm2", "llama3", "mimo", "minicpm5", "mistral", "poolside_v1", "pythonic",
        "qwen", "qwen25", "qwen3_coder", "step3", "step3p5", "minimax-m2", "minimax-m3", "trinity", "interns1",
        "hermes", "hunyuan", "gigachat3", "gemma4", "inkling",
    }
)  # fmt: skip
REASONING_PARSERS: Final = frozenset(
    {
        "apertus2509", "deepseek-r1", "deepseek-v3", "deepseek-v4", "glm45", "hunyuan", "gpt-oss", "kimi", "kimi_k2",
        "mimo", "poolside_v1", "qwen3", "qwen3-thinking", "minimax", "minimax-append-think", "minimax-m3", "step3",
        "step3p5", "mistral", "nemotron_3", "interns1", "gemma4", "inkling", "cohere_command4",
    }
)  # fmt: skip

SPELLING: Final = {
    Knob.TENSOR_PARALLEL: Spelling(Flag("--tensor-parallel-size", ("--tp-size", "--tp"))),
    Knob.PIPELINE_PARALLEL: Spelling(Flag("--pipeline-parallel-size", ("--pp-size", "--pp"))),
    Knob.MAX_CONTEXT_LENGTH: Spelling(Flag("--context-length")),
    Knob.MEMORY_FRACTION: Spelling(Flag("--mem-fraction-static")),
    Knob.MAX_CONCURRENT_REQUESTS: Spelling(Flag("--max-running-requests")),
    Knob.KV_CACHE_DTYPE: Spelling(Flag("--kv-cache-dtype"), allowed=KV_CACHE_TYPES),
    Knob.DTYPE: Spelling(Flag("--dtype"), allowed=DTYPES),
    Knob.QUANTIZATION: Spelling(Flag("--quantization"), allowed=QUANTIZATIONS),
    Knob.TRUST_REMOTE_CODE: Spelling(Flag("--trust-remote-code"), switch=True),
    Knob.TOOL_CALL_PARSER: Spelling(Flag("--tool-call-parser"), allowed=TOOL_PARSERS),
    Knob.REASONING_PARSER: Spelling(Flag("--reasoning-parser"), allowed=REASONING_PARSERS),
}

IMAGE: Final = "lmsysorg/sglang:v0.5.16"


def supports(host: HostProfile) -> EngineSupport:
    """CUDA on Linux (or WSL), as process or container."""
    if host.platform is HostPlatform.DARWIN:
        return NotSupported("SGLang is launched on CUDA hosts; use llamacpp or mlx here")
    if host.platform is HostPlatform.WIN32 and not host.wsl:
        return NotSupported("SGLang runs on Windows only inside WSL")
    if host.accelerator is not Accelerator.CUDA:
        return NotSupported(f"SGLang is launched on CUDA hosts; this one computes with {host.accelerator}")
    docker = (EngineRuntimeKind.DOCKER,) if host.docker_gpu else ()
    return Supported((EngineRuntimeKind.PROCESS, *docker))


def image(host: HostProfile) -> str | None:
    """The CUDA image of the pinned build."""
    return IMAGE if host.accelerator is Accelerator.CUDA else None


def plan(request: LaunchRequest) -> LaunchPlan:
    """The launch plan of one ``sglang serve``."""
    docker = request.runtime is EngineRuntimeKind.DOCKER
    mount, inside = container_model(request.model_path, is_file=request.model_path.endswith(".gguf"))
    knobs, _ = spell(SPEC, request)
    arguments = (
        Argument(Flag("--model-path", ("--model",)), (inside if docker else request.model_path,)),
        Argument(Flag("--served-model-name"), (request.served_model_name,)),
        Argument(Flag("--host"), (EVERY_INTERFACE if docker else LOOPBACK,)),
        Argument(Flag("--port"), (str(request.port),)),
        Argument(Flag("--enable-metrics")),
        *knobs,
    )
    return LaunchPlan(
        kind=request.runtime,
        argv=("sglang" if docker else request.binary, "serve", *command(arguments, request.extra_args)),
        env=dict(request.env),
        ports=(PortBinding(request.port, request.port),),
        mounts=(mount,) if docker else (),
        devices=request.devices,
        health=SPEC.health,
        image=(request.docker_image or image(request.host)) if docker else None,
    )


SPEC: Final = EngineSpec(
    id=EngineId.SGLANG,
    health=HealthCheck("/health", 900_000, 2_000),
    # one answer takes at least 1.0 s, and 20 s pass before the server itself says 503
    probes=Probes("/model_info", timeout_ms=25_000, generative=True, lists_served_name=True),
    metrics={
        CanonicalMetric.REQUESTS_RUNNING: ("sglang:num_running_reqs",),
        CanonicalMetric.REQUESTS_WAITING: ("sglang:num_queue_reqs",),
        CanonicalMetric.KV_CACHE_UTILIZATION: ("sglang:token_usage", "sglang:full_token_usage"),
        CanonicalMetric.PROMPT_TOKENS_TOTAL: ("sglang:prompt_tokens_total",),
        CanonicalMetric.GENERATION_TOKENS_TOTAL: ("sglang:generation_tokens_total",),
    },
    default_binary="sglang",
    default_port=30000,
    stop_grace_ms=30_000,
    supports=supports,
    plan=plan,
    image=image,
    spelling=SPELLING,
    logs_content=frozenset(
        {
            "--log-requests",
            "--log-requests-level",
            "--log-requests-target",
            "--crash-dump-folder",
            "--debug-tensor-dump-output-folder",
            "--spec-trace-dir",
            "--enable-trace",
        }
    ),
)
