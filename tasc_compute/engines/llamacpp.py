"""llama.cpp's ``llama-server``, build b10156.

Flags, aliases and behaviour are of that build's ``--help`` and of runs of the binary. Three things differ from what one
would expect:

- ``--ctx-size`` is the total over all slots unless the cache is unified, while our context length is a promise to each
  request: it is multiplied by the number of slots.
- A cache type is two flags with GGML's names; other names (fp8 ...) have no equivalent.
- ``--alias`` splits at commas, so a served name with one is refused.
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
    command,
    container_model,
    named,
    spell,
    value_of,
)

MODEL: Final = Flag("--model", ("-m",))
ALIAS: Final = Flag("--alias", ("-a",))
HOST: Final = Flag("--host")
PORT: Final = Flag("--port")
METRICS: Final = Flag("--metrics")
CONTEXT: Final = Flag("--ctx-size", ("-c",))
PARALLEL: Final = Flag("--parallel", ("-np",))
UNIFIED: Final = Flag("--kv-unified", ("-kvu",))
NOT_UNIFIED: Final = Flag("--no-kv-unified", ("-no-kvu",))
CACHE_K: Final = Flag("--cache-type-k", ("-ctk",))
CACHE_V: Final = Flag("--cache-type-v", ("-ctv",))

GGML_CACHE_TYPES: Final = frozenset({"f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"})
"""Values that ``--cache-type-k`` and ``-v`` take in b10156; anything else ends the server while it parses."""

AUTO_SLOTS: Final = 4
"""Slots of ``--parallel`` when it is not given; they share one unified cache (b10156)."""

IMAGES: Final = {
    Accelerator.CUDA: "ghcr.io/ggml-org/llama.cpp:server-cuda-b10156",
    Accelerator.ROCM: "ghcr.io/ggml-org/llama.cpp:server-rocm-b10156",
    Accelerator.XPU: "ghcr.io/ggml-org/llama.cpp:server-intel-b10156",
    Accelerator.CPU: "ghcr.io/ggml-org/llama.cpp:server-b10156",
}

MISSING: Final = {
    Knob.TENSOR_PARALLEL: "llama-server has no count of devices; see --split-mode, --tensor-split, --device",
    Knob.PIPELINE_PARALLEL: "llama-server splits layers over the visible devices by itself (--split-mode layer)",
    Knob.MEMORY_FRACTION: "llama-server fits to free memory by itself; see --fit-target (MiB per device)",
    Knob.DTYPE: "the type is in the model file",
    Knob.QUANTIZATION: "the quantization is in the model file",
    Knob.TRUST_REMOTE_CODE: "a model file holds no code",
    Knob.TOOL_CALL_PARSER: "llama-server detects the format from the chat template",
    Knob.REASONING_PARSER: "llama-server has no parser by name; see --reasoning-format",
}


def supports(host: HostProfile) -> EngineSupport:
    """A process everywhere; a container where docker can use the host's accelerator, or needs none."""
    docker = host.platform is not HostPlatform.DARWIN and (
        host.docker_gpu or (host.docker and host.accelerator is Accelerator.CPU)
    )
    kinds = (EngineRuntimeKind.PROCESS, EngineRuntimeKind.DOCKER) if docker else (EngineRuntimeKind.PROCESS,)
    return Supported(kinds)


def image(host: HostProfile) -> str | None:
    """The image of the pinned build for a host's accelerator."""
    return IMAGES.get(host.accelerator)


def slots(request: LaunchRequest) -> tuple[int, bool]:
    """How many slots the server will have, and whether they share one unified cache."""
    text = value_of(request.extra_args, PARALLEL)
    asked = int(text) if text and text.isdigit() else request.options.max_concurrent_requests
    given = [token for token in request.extra_args if named([token]) & (UNIFIED.spellings | NOT_UNIFIED.spellings)]
    if given:
        return asked or AUTO_SLOTS, bool(named([given[-1]]).isdisjoint(NOT_UNIFIED.spellings))
    return (asked, False) if asked > 0 else (AUTO_SLOTS, True)


def _override(request: LaunchRequest, knob: Knob) -> tuple[Argument, ...] | str | None:
    options = request.options
    if knob is Knob.MAX_CONTEXT_LENGTH:
        count, unified = slots(request)
        total = options.max_context_length * (1 if unified else count)
        return (Argument(CONTEXT, (str(total),)),)
    if knob is Knob.MAX_CONCURRENT_REQUESTS:
        return (Argument(PARALLEL, (str(options.max_concurrent_requests),)),)
    if knob is Knob.KV_CACHE_DTYPE:
        kind = options.kv_cache_dtype or ""
        if kind not in GGML_CACHE_TYPES:
            return "llama-server takes only GGML's cache types"
        return (Argument(CACHE_K, (kind,)), Argument(CACHE_V, (kind,)))
    return None


def plan(request: LaunchRequest) -> LaunchPlan:
    """The launch plan of one ``llama-server``."""
    docker = request.runtime is EngineRuntimeKind.DOCKER
    mount, inside = container_model(request.model_path, is_file=True)
    knobs, _ = spell(SPEC, request)
    arguments = (
        Argument(MODEL, (inside if docker else request.model_path,)),
        Argument(ALIAS, (request.served_model_name,)),
        Argument(HOST, (EVERY_INTERFACE if docker else LOOPBACK,)),
        Argument(PORT, (str(request.port),)),
        Argument(METRICS),
        *knobs,
    )
    argv = command(arguments, request.extra_args, abbreviates=SPEC.abbreviates)
    return LaunchPlan(
        kind=request.runtime,
        argv=argv if docker else (request.binary, *argv),
        env=dict(request.env),
        ports=(PortBinding(request.port, request.port),),
        mounts=(mount,) if docker else (),
        devices=request.devices,
        health=SPEC.health,
        image=(request.docker_image or image(request.host)) if docker else None,
    )


def _refusals(request: LaunchRequest) -> tuple[str, ...]:
    reasons = []
    if "," in request.served_model_name:
        reasons.append("llama-server splits a served model name at commas; choose a name without one")
    if not request.model_path.endswith(".gguf"):
        reasons.append("llama-server needs the .gguf file itself; name it as the recipe's model")
    return tuple(reasons)


SPEC: Final = EngineSpec(
    id=EngineId.LLAMACPP,
    health=HealthCheck("/health", 600_000, 2_000),
    probes=Probes("/health", timeout_ms=3_000, lists_served_name=True),
    metrics={
        CanonicalMetric.REQUESTS_RUNNING: ("llamacpp:requests_processing",),
        CanonicalMetric.REQUESTS_WAITING: ("llamacpp:requests_deferred",),
        CanonicalMetric.PROMPT_TOKENS_TOTAL: ("llamacpp:prompt_tokens_total",),
        CanonicalMetric.GENERATION_TOKENS_TOTAL: ("llamacpp:tokens_predicted_total",),
    },
    default_binary="llama-server",
    default_port=8081,
    stop_grace_ms=10_000,
    supports=supports,
    plan=plan,
    image=image,
    missing=MISSING,
    override=_override,
    logs_content=frozenset(
        {
            "--log-prompts-dir",
            "--slot-save-path",
            "--verbose",
            "--log-verbose",
            "-v",
            "-lv",
            "--verbosity",
            "--log-verbosity",
            "LLAMA_ARG_LOG_VERBOSITY",
        }
    ),
    refusals=_refusals,
    abbreviates=False,  # common/arg.cpp looks options up by their whole name
)
