"""The registered builds, keyed by (runtime, build).

Rules:

1. The eight pins are built in. Nothing is discovered or loaded from plugins.
2. An operator's build file adds one build on the wire tables of a registered one. Every capability of it is
   ``unknown``: its routes are admitted by signed canary receipts only, so an unverified claim stays visibly unverified.
3. Any other build is refused, with the builds that are known.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tasc_collector.contracts.build_profile import BuildProfile
from tasc_collector.errors import InputError
from tasc_collector.runtimes import llama_cpp, lm_studio, mlx_lm, ollama, sglang, tensorrt_llm, tgi, vllm
from tasc_collector.runtimes.profile import Reference, RuntimeProfile
from tasc_collector.runtimes.tables import all_unknown

_PINNED: tuple[RuntimeProfile, ...] = (
    llama_cpp.PROFILE,
    lm_studio.PROFILE,
    mlx_lm.PROFILE,
    ollama.PROFILE,
    sglang.PROFILE,
    tensorrt_llm.PROFILE,
    tgi.PROFILE,
    vllm.PROFILE,
)


def profiles() -> tuple[RuntimeProfile, ...]:
    """The eight built-in profiles, sorted by runtime."""
    return _PINNED


def get_profile(runtime: str, build: str, builds: Iterable[BuildProfile] = ()) -> RuntimeProfile:
    """The profile of one build.

    Args:
        runtime: runtime id.
        build: exact build.
        builds: the operator's own build files.

    Raises:
        InputError: nobody registered that build; names the known ones.
    """
    known = [*_PINNED, *(operator_profile(item) for item in builds)]
    for profile in known:
        if (profile.runtime, profile.build) == (runtime, build):
            return profile
    same = [profile.build for profile in known if profile.runtime == runtime]
    if same:
        raise InputError(
            f"{runtime} is registered at {', '.join(same)} only",
            field="build",
            way_out=f"use a registered build, or add yours: tasc runtimes try {runtime} BUILD --endpoint ALIAS",
        )
    raise InputError(
        "the runtime is not registered",
        field="runtime",
        way_out="choose one of " + ", ".join(profile.runtime for profile in _PINNED),
    )


def operator_profile(record: BuildProfile) -> RuntimeProfile:
    """The profile of an operator's build: the wire tables of its base, and nothing claimed.

    Raises:
        InputError: the base is not built in, is another runtime, or the build is already registered.
    """
    base = next(
        (item for item in _PINNED if (item.runtime, item.build) == (record.wire_base.runtime, record.wire_base.build)),
        None,
    )
    if base is None:
        raise InputError(
            "the wire base is not a registered build",
            field="wireBase",
            way_out="name one of " + ", ".join(f"{item.runtime} {item.build}" for item in _PINNED),
        )
    if base.runtime != record.runtime:
        raise InputError(
            "a build borrows the wire tables of its own runtime only",
            field="wireBase.runtime",
            way_out=f"name a registered build of {record.runtime}",
        )
    if base.build == record.build:
        raise InputError("the build is registered already", field="build", way_out="use it without a build file")
    reference = Reference(
        f"{base.display_name} {record.build}: declared by {record.declared_by}", base.references[0].url
    )
    return replace(
        base,
        build=record.build,
        capabilities=all_unknown(
            "An operator's own build: nobody established it. A signed receipt can show it.", reference
        ),
        references=(reference,),
        wire_base=(base.runtime, base.build),
    )
