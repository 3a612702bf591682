"""The compute layer's contracts: no imports from this project, no I/O, the standard library only.

Three rules carry the design:

1. Engines are pure. ``plan()`` is a total function of its request: no clock, environment or file system.
2. The instance record is the lease. A device is held if and only if a live record claims it; there is no registry that
   could disagree.
3. Status is derived, never stored. ``state.state_of`` reads liveness, then health, then the deadline.

Fields have Python names here and the published camelCase names in JSON (``codec``). ``None`` means that a platform
cannot say; zero means zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Literal, TypeAlias

OMIT_NONE: Final = {"omit_none": True}
"""Field metadata: the JSON form leaves the field out where it is ``None``, as the published contract does."""


class EngineId(StrEnum):
    """Software that this project launches."""

    VLLM = "vllm"
    SGLANG = "sglang"
    LLAMACPP = "llamacpp"
    MLX = "mlx"
    EXLLAMAV3 = "exllamav3"


class Accelerator(StrEnum):
    """What a host computes with."""

    CUDA = "cuda"
    ROCM = "rocm"
    METAL = "metal"
    XPU = "xpu"
    CPU = "cpu"


class EngineRuntimeKind(StrEnum):
    """How an engine is run."""

    PROCESS = "process"
    DOCKER = "docker"


class HostPlatform(StrEnum):
    """Operating system family."""

    LINUX = "linux"
    DARWIN = "darwin"
    WIN32 = "win32"


class HostArch(StrEnum):
    """Processor architecture."""

    X64 = "x64"
    ARM64 = "arm64"


NodeId: TypeAlias = str
"""``"self"`` is always this host; peers use their registered id."""

DeviceId: TypeAlias = str
"""Stable across reboots: a GPU's UUID, or ``"metal:0"``, ``"cpu:0"``. Never a bare index: indices renumber."""


@dataclass(frozen=True, slots=True)
class HostProfile:
    """What an engine needs to know about a host to plan for it.

    ``unified_memory`` is true where device memory *is* host memory (Apple silicon, GB10). ``docker_gpu`` says that
    docker is present *and* passes GPUs through; never on macOS.
    """

    node_id: NodeId
    platform: HostPlatform
    arch: HostArch
    accelerator: Accelerator
    unified_memory: bool
    wsl: bool
    docker: bool
    docker_gpu: bool
    device_count: int


# --- engines ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Supported:
    """The engine runs on the host in these ways."""

    runtimes: tuple[EngineRuntimeKind, ...]
    ok: Literal[True] = True


@dataclass(frozen=True, slots=True)
class NotSupported:
    """The engine does not run on the host; ``reason`` is a sentence for a person."""

    reason: str
    ok: Literal[False] = False


EngineSupport: TypeAlias = Supported | NotSupported


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """Where an engine answers when it is ready, how long a cold start may take, and how often to ask."""

    path: str
    ready_deadline_ms: int
    interval_ms: int


class CanonicalMetric(StrEnum):
    """Metrics that every engine names differently."""

    REQUESTS_RUNNING = "requestsRunning"
    REQUESTS_WAITING = "requestsWaiting"
    KV_CACHE_UTILIZATION = "kvCacheUtilization"
    PROMPT_TOKENS_TOTAL = "promptTokensTotal"
    GENERATION_TOKENS_TOTAL = "generationTokensTotal"


MetricMap: TypeAlias = Mapping[CanonicalMetric, tuple[str, ...]]
"""Canonical metric to the Prometheus names that may carry it, in priority order; absent where an engine has none."""


@dataclass(frozen=True, slots=True)
class PortBinding:
    """A port inside the engine's world and the host's port that leads to it."""

    container: int
    host: int


@dataclass(frozen=True, slots=True)
class Mount:
    """A host path seen inside a container."""

    from_: str
    to: str
    read_only: bool


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """What to run; a launcher decides how.

    ``argv`` is ``[binary, ...args]`` for a process and the entry point's arguments for a container. ``devices`` is
    abstract: no engine writes ``CUDA_VISIBLE_DEVICES``; ``visibility.apply_devices`` does, once, for all.
    """

    kind: EngineRuntimeKind
    argv: tuple[str, ...]
    env: Mapping[str, str]
    ports: tuple[PortBinding, ...]
    mounts: tuple[Mount, ...]
    devices: tuple[DeviceId, ...]
    health: HealthCheck
    image: str | None = field(default=None, metadata=OMIT_NONE)
    workdir: str | None = field(default=None, metadata=OMIT_NONE)


@dataclass(frozen=True, slots=True)
class ServingOptions:
    """Tuning knobs, named once; each engine has its spelling table. ``0``, ``None``, false, "" and "auto" mean unset.

    ``max_context_length`` (tokens) is promised to *each request*; ``memory_fraction`` is a share of a device, 0 to 1.
    """

    tensor_parallel: int = 0
    pipeline_parallel: int = 0
    max_context_length: int = 0
    memory_fraction: float = 0.0
    max_concurrent_requests: int = 0
    kv_cache_dtype: str | None = None
    dtype: str | None = None
    quantization: str | None = None
    trust_remote_code: bool = False
    tool_call_parser: str | None = None
    reasoning_parser: str | None = None


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """Everything that an engine's plan is a function of.

    ``model_path`` is absolute: a folder, or the .gguf file for llama.cpp. ``extra_args`` are verbatim and last; any
    base flag that they repeat is dropped. ``binary`` is the resolved executable of process launches, ignored for
    docker.
    """

    engine: EngineId
    host: HostProfile
    runtime: EngineRuntimeKind
    devices: tuple[DeviceId, ...]
    port: int
    model_path: str
    served_model_name: str
    options: ServingOptions
    extra_args: tuple[str, ...]
    env: Mapping[str, str]
    docker_image: str | None
    binary: str


# --- instances --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProcessReference:
    """A process that leads its own session and group.

    ``start_token`` is ``<boot id>:<start time>``: closes pid reuse.
    """

    pid: int
    start_token: str | None
    kind: Literal["process"] = "process"


@dataclass(frozen=True, slots=True)
class DockerReference:
    """A container by its full id."""

    container: str
    kind: Literal["docker"] = "docker"


@dataclass(frozen=True, slots=True)
class RemoteReference:
    """An instance of another node, which alone can say whether it lives."""

    node_id: NodeId
    name: str
    kind: Literal["remote"] = "remote"


@dataclass(frozen=True, slots=True)
class PinnedReference:
    """A device hold without a supervised process. Always alive; freed only by its holder's release."""

    holder: str
    kind: Literal["pinned"] = "pinned"


HandleReference: TypeAlias = ProcessReference | DockerReference | RemoteReference | PinnedReference


@dataclass(frozen=True, slots=True)
class InstanceRecord:
    """The single truth about a deployment, and the lease of its devices and port.

    ``ref`` is ``None`` while nothing was spawned. ``nonce`` proves that we started it: a launcher signals nothing
    whose nonce or start token it has not proved. Times are ISO 8601 UTC with milliseconds.
    """

    name: str
    node_id: NodeId
    engine: EngineId
    recipe_id: str
    runtime: EngineRuntimeKind
    ref: HandleReference | None
    port: int
    devices: tuple[DeviceId, ...]
    nonce: str
    started_at: str
    ready_deadline_at: str


class InstanceState(StrEnum):
    """Derived by ``state.state_of``; stored nowhere."""

    RESERVING = "reserving"
    STARTING = "starting"
    READY = "ready"
    UNHEALTHY = "unhealthy"
    EXITED = "exited"


# --- devices ----------------------------------------------------------------------------------------------------------


class TelemetryField(StrEnum):
    """What a host's probes may be able to answer."""

    MEMORY = "memory"
    UTILIZATION = "utilization"
    TEMPERATURE = "temperature"
    POWER = "power"
    STORAGE = "storage"
    HOST_MEMORY = "hostMemory"


class DeviceVendor(StrEnum):
    """Who made an accelerator."""

    NVIDIA = "nvidia"
    AMD = "amd"
    APPLE = "apple"
    INTEL = "intel"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class AcceleratorInfo:
    """One accelerator at one instant.

    Percent 0 to 100, degrees Celsius, watts, bytes; ``None`` where it cannot be told.
    """

    id: DeviceId
    index: int
    vendor: DeviceVendor
    name: str
    accelerator: Accelerator
    memory_total_bytes: int
    memory_used_bytes: int
    unified_memory: bool
    utilization_pct: float | None
    temperature_c: float | None
    power_watts: float | None
    power_limit_watts: float | None
    driver: str | None
    throttled: bool | None = field(default=None, metadata=OMIT_NONE)
    """Slowed down by heat or by the hardware's own protection; a power limit that was set is no such thing."""


@dataclass(frozen=True, slots=True)
class HostInfo:
    """The host at one instant, in bytes and seconds."""

    cpu_model: str
    cpu_count: int
    memory_total_bytes: int
    memory_available_bytes: int
    swap_total_bytes: int | None
    platform: HostPlatform
    arch: HostArch
    release: str
    uptime_seconds: float
    cpu_throttle_count: int | None = field(default=None, metadata=OMIT_NONE)
    """How often the processor was slowed down by heat since it started; two snapshots tell whether it was between."""


@dataclass(frozen=True, slots=True)
class VolumeInfo:
    """One mounted file system."""

    mount: str
    total_bytes: int
    free_bytes: int
    filesystem: str | None
    model: str | None
    rotational: bool | None


@dataclass(frozen=True, slots=True)
class ThermalInfo:
    """One temperature sensor, degrees Celsius."""

    label: str
    celsius: float
    source: Literal["gpu", "cpu", "chassis"]


@dataclass(frozen=True, slots=True)
class DeviceSnapshot:
    """All devices at one instant.

    A field absent from ``capabilities`` is shown as unsupported, not as a plausible zero.
    """

    sampled_at: str
    accelerators: tuple[AcceleratorInfo, ...]
    host: HostInfo
    storage: tuple[VolumeInfo, ...]
    thermals: tuple[ThermalInfo, ...]
    capabilities: tuple[TelemetryField, ...]


# --- failure ----------------------------------------------------------------------------------------------------------
# Made by ``lifecycle`` only; rendered by ``render`` only.


@dataclass(frozen=True, slots=True)
class Unsupported:
    """The engine cannot run like this on the host."""

    engine: EngineId
    reason: str
    kind: Literal["unsupported"] = "unsupported"


@dataclass(frozen=True, slots=True)
class AlreadyRunning:
    """A live record has this name."""

    name: str
    kind: Literal["already-running"] = "already-running"


@dataclass(frozen=True, slots=True)
class NoCapacity:
    """Fewer devices are free than the launch needs (counts)."""

    need: int
    free: int
    kind: Literal["no-capacity"] = "no-capacity"


@dataclass(frozen=True, slots=True)
class InstallFailed:
    """The executable is missing, or the image could not be pulled."""

    engine: EngineId
    detail: str
    kind: Literal["install-failed"] = "install-failed"


@dataclass(frozen=True, slots=True)
class SpawnFailed:
    """The process or container could not be started."""

    detail: str
    kind: Literal["spawn-failed"] = "spawn-failed"


@dataclass(frozen=True, slots=True)
class ExitedEarly:
    """The engine ended before it was ready.

    Exit code and signal are ``None`` where only a dead parent could know them.
    """

    exit_code: int | None
    signal: str | None
    log_tail: str
    kind: Literal["exited-early"] = "exited-early"


@dataclass(frozen=True, slots=True)
class UnhealthyTimeout:
    """The engine lived but was not ready by its deadline (milliseconds waited)."""

    waited_ms: int
    log_tail: str
    kind: Literal["unhealthy-timeout"] = "unhealthy-timeout"


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The caller gave up while the engine was starting."""

    kind: Literal["cancelled"] = "cancelled"


LaunchFailure: TypeAlias = (
    Unsupported | AlreadyRunning | NoCapacity | InstallFailed | SpawnFailed | ExitedEarly | UnhealthyTimeout | Cancelled
)
