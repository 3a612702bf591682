"""Call targets for tests: an endpoint on loopback, its policy, its declared instance, a key and a store of secrets."""

from __future__ import annotations

from typing import Any

from tasc_collector.contracts.http_limits import HttpLimits
from tasc_collector.contracts.instance import BackendBuild, ModelRevision, RuntimeBuild, RuntimeInstance
from tasc_collector.identity import PayloadKey
from tasc_collector.invocation.prepare import CallTarget
from tasc_collector.runtimes.profile import Framing, Route
from tasc_collector.runtimes.registry import get_profile
from tasc_collector.runtimes.request import Generation
from tests.support.calls import policy_for

KEY = PayloadKey("study-1", "payload-1", bytes(range(32)))
BUILDS = {"vllm": "0.26.0", "llama.cpp": "b10156", "ollama": "0.32.5", "mlx-lm": "0.31.3", "lm-studio": "0.4.1"}


def target_for(
    origin: str,
    *,
    runtime: str = "vllm",
    route: Route = Route.COMPLETIONS,
    framing: Framing = Framing.SSE,
    model: str = "org/model",
    limits: HttpLimits | None = None,
    policy_changes: dict[str, Any] | None = None,
    **changes: Any,
) -> CallTarget:
    """A target whose instance is bound to the policy's endpoint."""
    build = BUILDS[runtime]
    endpoint = {
        "runtime": {"profileId": runtime, "build": build},
        "routes": [{"method": "POST", "pathPrefix": "/", "authenticationReferences": []}],
    }
    extra = dict(policy_changes or {})
    endpoint.update(extra.pop("endpoint", {}))
    policy = policy_for(origin, endpoint=endpoint, **extra)
    trusted = policy.endpoint("main")
    assert trusted is not None
    instance = RuntimeInstance(
        endpoint_descriptor_digest=trusted.binding_digest(None),
        runtime=RuntimeBuild(profile_id=runtime, build=build),
        backend=BackendBuild(name="cpu", build="1"),
        model=ModelRevision(id=model, revision="r1"),
        configuration_digest="sha256:" + "c" * 64,
    )
    arguments: dict[str, Any] = {
        "policy": policy,
        "alias": "main",
        "instance": instance,
        "profile": get_profile(runtime, build),
        "route": route,
        "framing": framing,
        "limits": limits or HttpLimits(),
    }
    return CallTarget(**{**arguments, **changes})


def generation_for(target: CallTarget, *, prompt: str = "Once upon", **changes: Any) -> Generation:
    """A completion of eight tokens, streamed where the target streams."""
    arguments: dict[str, Any] = {
        "model_id": target.instance.model.id,
        "max_tokens": 8,
        "stream": target.framing is not Framing.JSON,
        "prompt": prompt,
    }
    return Generation(**{**arguments, **changes})
