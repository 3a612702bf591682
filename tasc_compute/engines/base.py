"""What an engine is to the compute layer, and how its command line is spelled.

A new engine is one module with an ``EngineSpec``: a table of knobs to flags, a function that builds base flags, a
metric map and its probes. The rules that every engine shares live here:

- ``None``, false, 0, "" and "auto" are unset. The two parallel knobs are emitted only above 1, other numbers only
  above 0.
- A knob without an equivalent, or a value that the engine does not know, is dropped and reported, never guessed.
- Extra arguments come last and verbatim. A base flag that they repeat is dropped with all its values, whether they
  name it by an alias, with ``_`` for ``-``, as ``--flag=value``, negated, or cut short where the engine's parser takes
  that; a companion flag goes with the flag it belongs to.
- Python's argparse takes a long option that is cut short, if only one begins so (``allow_abbrev``, its default). None of
  the options that we list begins with another option of its engine that we do not list, so whatever a listed one begins
  with is that one, or an abbreviation of several, with which the engine does not start.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Final, TypeAlias

from tasc_compute.contracts import (
    EngineId,
    EngineSupport,
    HealthCheck,
    HostProfile,
    LaunchPlan,
    LaunchRequest,
    MetricMap,
    Mount,
    ServingOptions,
)

LOOPBACK: Final = "127.0.0.1"
EVERY_INTERFACE: Final = "0.0.0.0"  # noqa: S104  # inside a container only; the host publishes loopback
MODELS_IN_CONTAINER: Final = "/models"


class Knob(StrEnum):
    """The fields of ``ServingOptions``, in the order in which flags are written."""

    TENSOR_PARALLEL = "tensor_parallel"
    PIPELINE_PARALLEL = "pipeline_parallel"
    MAX_CONTEXT_LENGTH = "max_context_length"
    MEMORY_FRACTION = "memory_fraction"
    MAX_CONCURRENT_REQUESTS = "max_concurrent_requests"
    KV_CACHE_DTYPE = "kv_cache_dtype"
    DTYPE = "dtype"
    QUANTIZATION = "quantization"
    TRUST_REMOTE_CODE = "trust_remote_code"
    TOOL_CALL_PARSER = "tool_call_parser"
    REASONING_PARSER = "reasoning_parser"


KnobValue: TypeAlias = int | float | str | bool
_PARALLEL: Final = frozenset({Knob.TENSOR_PARALLEL, Knob.PIPELINE_PARALLEL})


@dataclass(frozen=True, slots=True)
class Flag:
    """One option of an engine's command line.

    Args:
        name: the spelling that we write.
        aliases: other spellings that the engine takes for the same option, negations included.
    """

    name: str
    aliases: tuple[str, ...] = ()

    @property
    def spellings(self) -> frozenset[str]:
        """Every spelling, normalised."""
        return frozenset(normalised(name) for name in (self.name, *self.aliases))


@dataclass(frozen=True, slots=True)
class Argument:
    """A base flag with its values, as it will be written.

    Args:
        flag: the option.
        values: its values; empty for a switch.
        companion_of: spelling of the flag without which this one is pointless.
        positional: write the values without the flag (a model as first argument).
    """

    flag: Flag
    values: tuple[str, ...] = ()
    companion_of: str | None = None
    positional: bool = False


@dataclass(frozen=True, slots=True)
class Spelling:
    """How one engine says one knob.

    Args:
        flag: the option.
        allowed: the engine's closed list of values, if it has one.
        switch: the flag takes no value.
        translate: our value to the engine's; ``None`` where it has none.
        companion: a switch that must stand beside it.
    """

    flag: Flag
    allowed: frozenset[str] | None = None
    switch: bool = False
    translate: Callable[[KnobValue], str | None] | None = None
    companion: Flag | None = None


@dataclass(frozen=True, slots=True)
class Dropped:
    """A knob that a plan leaves out, with the reason."""

    knob: Knob
    value: KnobValue
    reason: str


@dataclass(frozen=True, slots=True)
class Probes:
    """How an engine proves that it is ready, and how it can be asked without work.

    Args:
        passive_path: a GET that generates nothing; the only probe while a window runs.
        timeout_ms: longest time for one answer of the readiness probe.
        generative: the readiness probe generates a token, so that readiness is proved once and kept (latched).
        completion_path: POST path of a one-token completion, where nothing else proves readiness.
        completion_body: its JSON body.
        lists_served_name: ``GET /v1/models`` names the served model.
    """

    passive_path: str
    timeout_ms: int
    generative: bool = False
    completion_path: str | None = None
    completion_body: str | None = None
    lists_served_name: bool = False


def _no_refusals(request: LaunchRequest) -> tuple[str, ...]:
    """Most engines refuse nothing beyond ``supports``."""
    del request
    return ()


def _no_override(request: LaunchRequest, knob: Knob) -> tuple[Argument, ...] | str | None:
    """Most knobs are only a matter of spelling."""
    del request, knob
    return None


Override: TypeAlias = Callable[[LaunchRequest, Knob], tuple[Argument, ...] | str | None]
"""A knob that a table cannot say: arguments, or the reason for dropping it, or ``None`` for the table's way."""


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """An engine as the compute layer sees it; everything in it is pure.

    Args:
        id: which engine.
        health: path, cold-start budget and interval.
        probes: readiness and passive probes.
        metrics: canonical metric to Prometheus names.
        default_binary: executable where a recipe names none.
        default_port: port where a recipe names none.
        stop_grace_ms: time between SIGTERM and SIGKILL.
        supports: whether and how the engine runs on a host.
        plan: the launch plan, before device visibility.
        spelling: knob to flag.
        missing: knob to the reason why it has no equivalent.
        base: flags that every launch has.
        override: knobs whose flag depends on more than their value.
        image: container image for a host, if there is one.
        logs_content: flags and variables with which the engine writes prompts or answers into a log or file.
        refusals: reasons why this very request must not be launched.
        rocm_hip_only: the engine refuses ``ROCR_VISIBLE_DEVICES`` (it compares HIP and CUDA variables).
        abbreviates: its parser takes long options that are cut short, as Python's argparse does by default.
    """

    id: EngineId
    health: HealthCheck
    probes: Probes
    metrics: MetricMap
    default_binary: str
    default_port: int
    stop_grace_ms: int
    supports: Callable[[HostProfile], EngineSupport]
    plan: Callable[[LaunchRequest], LaunchPlan]
    image: Callable[[HostProfile], str | None]
    spelling: Mapping[Knob, Spelling] = field(default_factory=dict)
    missing: Mapping[Knob, str] = field(default_factory=dict)
    override: Override = _no_override
    logs_content: frozenset[str] = frozenset()
    refusals: Callable[[LaunchRequest], tuple[str, ...]] = _no_refusals
    rocm_hip_only: bool = False
    abbreviates: bool = True


def normalised(token: str) -> str:
    """An option token without its value, with ``-`` for ``_``; an empty string if it is no option."""
    head = token.split("=", 1)[0]
    if len(head) < 2 or not head.startswith("-") or head[1].isdigit() or head[1] == ".":
        return ""
    return head.replace("_", "-")


def named(extra_args: Iterable[str]) -> frozenset[str]:
    """All options that extra arguments name, each also without its negation (``--no-x`` counts as ``--x``)."""
    found: set[str] = set()
    for token in extra_args:
        name = normalised(token)
        if not name:
            continue
        found.add(name)
        if name.startswith(("--no-", "-no-")):
            dashes = "--" if name.startswith("--") else "-"
            found.add(dashes + name[len(dashes) + 3 :])
    return frozenset(found)


def meant(given: Iterable[str], listed: Collection[str], *, abbreviates: bool) -> frozenset[str]:
    """The listed options that given ones mean: the same, or those that begin with a long one that is not listed itself.

    Args:
        given: normalised options.
        listed: normalised options that are asked for.
        abbreviates: the engine's parser takes long options that are cut short.
    """
    given = frozenset(given)
    cut = tuple(name for name in given.difference(listed) if abbreviates and name.startswith("--") and name != "--")
    return frozenset(name for name in listed if name in given or name.startswith(cut))


def value_of(extra_args: Sequence[str], flag: Flag) -> str | None:
    """The last value that extra arguments give a flag, or ``None``."""
    value: str | None = None
    for index, token in enumerate(extra_args):
        if normalised(token) in flag.spellings:
            if "=" in token:
                value = token.split("=", 1)[1]
            elif index + 1 < len(extra_args) and not normalised(extra_args[index + 1]):
                value = extra_args[index + 1]
    return value


def command(arguments: Sequence[Argument], extra_args: Sequence[str], *, abbreviates: bool = True) -> tuple[str, ...]:
    """Base flags that extra arguments do not repeat, then the extra arguments, verbatim.

    Args:
        arguments: base flags.
        extra_args: the request's own.
        abbreviates: the engine's parser takes long options that are cut short.
    """
    known = {spelling for argument in arguments for spelling in argument.flag.spellings}
    given = meant(named(extra_args), known, abbreviates=abbreviates)
    out: list[str] = []
    for argument in arguments:
        if argument.flag.spellings & given or (argument.companion_of and normalised(argument.companion_of) in given):
            continue
        out += argument.values if argument.positional else (argument.flag.name, *argument.values)
    return (*out, *extra_args)


def is_set(knob: Knob, value: object) -> bool:
    """Whether a knob's value asks for something."""
    if value is None or value is False or value in ("", "auto"):
        return False
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value > (1 if knob in _PARALLEL else 0)
    return True


def text_of(value: KnobValue) -> str:
    """A knob's value on a command line: floats without exponent or trailing zeros."""
    if isinstance(value, float):
        return f"{value:.6f}".rstrip("0").rstrip(".")
    return str(value)


def set_knobs(options: ServingOptions) -> tuple[tuple[Knob, KnobValue], ...]:
    """The knobs that ask for something, in the fixed order."""
    pairs = ((knob, getattr(options, knob.value)) for knob in Knob)
    return tuple((knob, value) for knob, value in pairs if is_set(knob, value))


def spell(spec: EngineSpec, request: LaunchRequest) -> tuple[tuple[Argument, ...], tuple[Dropped, ...]]:
    """All set knobs of a request as base flags, and those that are dropped with their reasons."""
    arguments: list[Argument] = []
    dropped: list[Dropped] = []
    for knob, value in set_knobs(request.options):
        special = spec.override(request, knob)
        if isinstance(special, str):
            dropped.append(Dropped(knob, value, special))
            continue
        if special is not None:
            arguments += special
            continue
        spelling = spec.spelling.get(knob)
        if spelling is None:
            dropped.append(Dropped(knob, value, spec.missing.get(knob, "the engine has no such option")))
            continue
        written = spelling.translate(value) if spelling.translate else text_of(value)
        if written is None or (spelling.allowed is not None and written not in spelling.allowed):
            dropped.append(Dropped(knob, value, f"{spelling.flag.name} does not take this value"))
            continue
        arguments.append(Argument(spelling.flag, () if spelling.switch else (written,)))
        if spelling.companion:
            arguments.append(Argument(spelling.companion, companion_of=spelling.flag.name))
    return tuple(arguments), tuple(dropped)


def container_model(model_path: str, *, is_file: bool) -> tuple[Mount, str]:
    """The mount that makes a model visible in a container, and its path there.

    A Hugging Face snapshot is a folder of links into ``../../blobs``, so the repository's cache root is mounted; a
    file is mounted with its folder, since a split GGUF has siblings.
    """
    path = PurePosixPath(model_path)
    parts = path.parts
    if "snapshots" in parts:
        root = PurePosixPath(*parts[: parts.index("snapshots")])
    elif is_file:
        root = path.parent
    else:
        return Mount(
            str(path), f"{MODELS_IN_CONTAINER}/{path.name}", read_only=True
        ), f"{MODELS_IN_CONTAINER}/{path.name}"
    return Mount(str(root), MODELS_IN_CONTAINER, read_only=True), f"{MODELS_IN_CONTAINER}/{path.relative_to(root)}"
