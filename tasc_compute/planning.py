"""From a launch request to what will be run, without running it. Everything here is pure and deterministic."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping
from typing import Final

from tasc_compute.canonical import digest
from tasc_compute.codec import to_json
from tasc_compute.contracts import DeviceId, EngineRuntimeKind, LaunchPlan, LaunchRequest, NotSupported
from tasc_compute.engines import engine
from tasc_compute.engines.base import Dropped, meant, named, normalised, spell
from tasc_compute.limits import DOCKER_SHM_BYTES
from tasc_compute.redaction import MASK, is_secret_name
from tasc_compute.visibility import DevicePlace, apply_devices, container_devices, docker_options, unplaced, unusable

CONFIGURATION_DOMAIN: Final = "tasc/engine-configuration/v1"
"""Digest domain of an engine's configuration."""
_PORT: Final = "--port"
"""Every engine's own flag for the port that its lease holds."""


def plan_launch(request: LaunchRequest, places: Mapping[DeviceId, DevicePlace] | None = None) -> LaunchPlan:
    """The engine's plan with its devices made visible.

    Args:
        request: what to launch.
        places: ordinal and device files of each device during this boot.
    """
    spec = engine(request.engine)
    host = request.host
    return apply_devices(spec.plan(request), host.accelerator, places, wsl=host.wsl, hip_only=spec.rocm_hip_only)


def dropped_knobs(request: LaunchRequest) -> tuple[Dropped, ...]:
    """The knobs that the plan leaves out because the engine has no equivalent, each with its reason."""
    return spell(engine(request.engine), request)[1]


def content_logging_flags(request: LaunchRequest) -> tuple[str, ...]:
    """Extra arguments and variables with which this engine would write prompts or answers into a log or file."""
    spec = engine(request.engine)
    flags = meant((normalised(token) for token in request.extra_args), spec.logs_content, abbreviates=spec.abbreviates)
    return tuple(sorted(flags | (spec.logs_content & set(request.env))))


def refusals(
    request: LaunchRequest, places: Mapping[DeviceId, DevicePlace] | None = None, *, logs_content: bool = False
) -> tuple[str, ...]:
    """Every reason why this request must not be launched, each a sentence that ends with the way out.

    Args:
        request: what to launch.
        places: ordinal and device files of each device during this boot.
        logs_content: the recipe allows the engine to write prompts and answers.
    """
    spec = engine(request.engine)
    support = spec.supports(request.host)
    if isinstance(support, NotSupported):
        return (support.reason,)
    reasons = list(spec.refusals(request))
    if request.runtime not in support.runtimes:
        ways = ", ".join(support.runtimes)
        reasons.append(f"{spec.id} runs on this host only as {ways}; change the recipe's runtime")
    if request.runtime is EngineRuntimeKind.DOCKER and not (request.docker_image or spec.image(request.host)):
        reasons.append(f"{spec.id} has no image for {request.host.accelerator}; name one as docker_image")
    if meant(named(request.extra_args), (_PORT,), abbreviates=spec.abbreviates):
        reasons.append(
            f"{_PORT} as an extra argument would leave the port that is leased; name it as the recipe's port"
        )
    if bad := unusable(request.devices, request.host.accelerator):
        reasons.append(bad)
    hidden = unplaced(
        request.devices, request.host.accelerator, request.runtime, places or {}, hip_only=spec.rocm_hip_only
    )
    if hidden:
        reasons.append(f"the driver's number of {', '.join(hidden)} is not known; run tasc devices to see what is")
    if not logs_content and (flags := content_logging_flags(request)):
        reasons.append(
            f"{', '.join(flags)} writes prompts or answers to disk; remove it, or say logs_content = true in the recipe"
        )
    return tuple(reasons)


def configuration_digest(plan: LaunchPlan, model_sha256: str) -> str:
    """The digest that identifies an engine's configuration: its launch plan and the model file's bytes.

    A digest is public, so the values of variables that are secret by name are left out of it.

    Args:
        plan: the launch plan.
        model_sha256: ``sha256:<hex>`` of the model file (or of a folder's listing of file digests).
    """
    env = {name: MASK if is_secret_name(name) else value for name, value in plan.env.items()}
    shown = dataclasses.replace(plan, env=env)
    return digest(CONFIGURATION_DOMAIN, {"modelSha256": model_sha256, "plan": to_json(shown)})


def shown_command(
    plan: LaunchPlan, request: LaunchRequest, places: Mapping[DeviceId, DevicePlace] | None = None
) -> str:
    """The plan as one shell command, for a person. Environment values are shown only for device variables."""
    shown = [f"{name}={shlex.quote(value)}" for name, value in sorted(_device_env(plan).items())]
    if plan.kind is EngineRuntimeKind.PROCESS:
        return " ".join([*shown, *(shlex.quote(token) for token in plan.argv)])
    options = ["docker", "run", "--init", "--restart", "no"]
    for binding in plan.ports:
        options += ["-p", f"127.0.0.1:{binding.host}:{binding.container}"]
    for mount in plan.mounts:
        options += ["-v", f"{mount.from_}:{mount.to}{':ro' if mount.read_only else ''}"]
    options += docker_options(container_devices(plan.devices, request.host.accelerator, places))
    if len(plan.devices) > 1:
        options += ["--shm-size", str(DOCKER_SHM_BYTES)]
    for name in sorted(plan.env):
        shown_value = _device_env(plan).get(name)
        options += ["-e", name if shown_value is None else f"{name}={shown_value}"]
    return " ".join(shlex.quote(token) for token in [*options, plan.image or "", *plan.argv])


def _device_env(plan: LaunchPlan) -> dict[str, str]:
    return {
        name: value for name, value in plan.env.items() if name.endswith("VISIBLE_DEVICES") or name.startswith("ZE_")
    }
