"""The words of a profile: capabilities, states, effects, routes, framings, observations and metrics.

Values are those of the original project wherever it has them; they go into records as they stand here.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Capability(StrEnum):
    """The sixteen capabilities of the original project, in its order, and whether a seed repeats an answer."""

    CHAT_COMPLETIONS = "chatCompletions"
    COMPLETIONS = "completions"
    RESPONSES = "responses"
    NATIVE_CHAT = "nativeChat"
    NATIVE_GENERATE = "nativeGenerate"
    STREAMING = "streaming"
    FINAL_USAGE = "finalUsage"
    LOGPROBS = "logprobs"
    STRUCTURED_OUTPUT = "structuredOutput"
    TOOLS = "tools"
    CANCELLATION = "cancellation"
    MODEL_DISCOVERY = "modelDiscovery"
    LIVENESS = "liveness"
    READINESS = "readiness"
    PROMETHEUS_METRICS = "prometheusMetrics"
    JSON_METRICS = "jsonMetrics"
    SEED_DETERMINISM = "seedDeterminism"


class CapabilityState(StrEnum):
    """What documentation or source of the pinned build says."""

    SUPPORTED = "supported"
    CONDITIONAL = "conditional"
    UNSUPPORTED = "unsupported"
    UNKNOWN = "unknown"


class Dependency(StrEnum):
    """What a conditional capability depends on."""

    BACKEND = "backend"
    MODEL = "model"
    CONFIGURATION = "configuration"


class Evidence(StrEnum):
    """How a claim is known."""

    LIVE = "live"
    """Seen on a running server of the pinned build."""
    SOURCE = "source"
    """Read in the pinned build's own source."""
    NEAREST_SOURCE = "nearest-source"
    """Read in the source nearest to the pin."""
    DOCUMENTATION = "documentation"
    """Vendor documents only."""
    OPERATOR = "operator"
    """Declared by the operator; nobody checked it."""


class Effect(StrEnum):
    """What one request does to the server."""

    NON_MUTATING = "non-mutating"
    CONSUMPTIVE = "consumptive"
    INFERENCE_CANARY = "inference-canary"


class Tier(StrEnum):
    """How far the project stands behind a profile."""

    PRODUCTION_CANDIDATE = "production-candidate"
    LEGACY = "legacy"
    APPROVED_INTERNAL = "approved-internal"
    EXPERIMENTAL = "experimental-local-only"


class Locality(StrEnum):
    """Where an endpoint of the runtime may be."""

    REMOTE_OR_LOCAL = "remote-or-local"
    LOCAL_ONLY = "local-only"


class Dialect(StrEnum):
    """The dialect that the runtime itself prefers."""

    OPENAI = "openai"
    OLLAMA_NATIVE = "ollama-native"
    LM_STUDIO_NATIVE = "lm-studio-native-v1"


class Route(StrEnum):
    """Invocation routes; each has the name of the capability that admits it."""

    CHAT_COMPLETIONS = "chatCompletions"
    COMPLETIONS = "completions"
    RESPONSES = "responses"
    NATIVE_CHAT = "nativeChat"
    NATIVE_GENERATE = "nativeGenerate"

    @property
    def capability(self) -> Capability:
        """The capability that must be supported, or shown by a receipt, for this route."""
        return Capability(self.value)


class Framing(StrEnum):
    """How an answer is framed on the wire."""

    JSON = "json"
    SSE = "sse"
    NDJSON = "ndjson"

    @property
    def media_type(self) -> str:
        """The media type that is asked for and must be answered."""
        return MEDIA_TYPES[self]


MEDIA_TYPES: Mapping[Framing, str] = {
    Framing.JSON: "application/json",
    Framing.SSE: "text/event-stream",
    Framing.NDJSON: "application/x-ndjson",
}


class Protocol(StrEnum):
    """Request and answer bodies; one builder and one reader each."""

    OPENAI_CHAT = "openai-chat-completions"
    OPENAI_COMPLETIONS = "openai-completions"
    OPENAI_RESPONSES = "openai-responses"
    OLLAMA_CHAT = "ollama-native-chat"
    OLLAMA_GENERATE = "ollama-native-generate"
    TGI_GENERATE = "tgi-native-generate"
    LM_STUDIO_CHAT = "lm-studio-native-chat"


class GenerationField(StrEnum):
    """Optional parts of a generation that a route may not have."""

    TEMPERATURE = "temperature"
    TOP_P = "topP"
    SEED = "seed"
    STOP = "stop"
    STREAM = "stream"


class ObservationKind(StrEnum):
    """What an observation route answers."""

    MODELS = "models"
    LIVENESS = "liveness"
    READINESS = "readiness"
    VERSION = "version"
    MODEL_INFO = "model-info"
    PROMETHEUS = "prometheus-metrics"
    JSON_METRICS = "json-metrics"


class Expectation(StrEnum):
    """What a good answer of an observation route looks like."""

    EMPTY_BODY = "empty-body"
    """Status 200 and no byte."""
    STATUS_OK = "status-ok"
    """``{"status": "ok"}`` and no ``error``."""
    EXACT_TEXT = "exact-text"
    """Status 200 and exactly ``ObservationRoute.text``."""
    STATUS_200 = "status-200"
    """Status 200; the body is dropped."""
    VERSION = "version"
    """``{"version": ...}``."""
    OPENAI_MODELS = "openai-models"
    """``{"object": "list", "data": [{"id": ...}]}``."""
    OLLAMA_MODELS = "ollama-models"
    """``{"models": [{"name", "digest", ...}]}``."""
    FIELDS = "fields"
    """A JSON object of which only ``ObservationRoute.fields`` are kept."""
    PROMETHEUS_TEXT = "prometheus-text"
    """Prometheus text."""
    ITERATION_STATS = "iteration-stats"
    """A JSON array of iteration records, of which only ``ObservationRoute.fields`` are kept; may be empty."""


class ResidencyRule(StrEnum):
    """How a runtime that loads, switches or forwards models on demand shows that it would not."""

    LOCAL_ENTRY = "local-entry"
    """The model's entry in the model list names no remote host."""
    LOADED_INSTANCE = "loaded-instance"
    """The model information lists a loaded instance of the model: no just-in-time load."""
    LISTED = "listed"
    """The model is in the model list: a call would neither download nor fail over to another."""


class CanonicalMetric(StrEnum):
    """Metrics that the project names itself."""

    REQUESTS_RUNNING = "requestsRunning"
    REQUESTS_WAITING = "requestsWaiting"
    KV_CACHE_UTILIZATION = "kvCacheUtilization"
    PROMPT_TOKENS_TOTAL = "promptTokensTotal"
    GENERATION_TOKENS_TOTAL = "generationTokensTotal"
    TTFT_SECONDS = "ttftSeconds"
    ITL_SECONDS = "itlSeconds"
    TPOT_SECONDS = "tpotSeconds"
    E2E_SECONDS = "e2eSeconds"


class MetricFormat(StrEnum):
    """Where a metric is read."""

    PROMETHEUS = "prometheus"
    JSON = "json"


class Reduce(StrEnum):
    """How several series of one family become one number; anything else would invent one."""

    SUM = "sum"
    """Add, after copies that differ only in a process id were dropped."""
    MAX = "max"
    """Take the greatest: a utilization is never added."""
    RATIO = "ratio"
    """First name divided by the second, within one record."""
    HISTOGRAM = "histogram"
    """The family is a histogram; its series are added bucket by bucket."""
