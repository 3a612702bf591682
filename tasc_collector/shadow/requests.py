"""From a case and a plan's target to one generation and its request bytes. Pure.

The plan's sampling is the same for every profile; a case may only lower the cap, and only set what the plan leaves open.
"""

from __future__ import annotations

from tasc_collector.contracts.collection import CollectionPlan, PlanTarget
from tasc_collector.runtimes.profile import Framing, Route, RuntimeProfile
from tasc_collector.runtimes.request import BuiltRequest, Generation, Message, Role, build_request
from tasc_collector.shadow.cases import Case

WARM_UP_PROMPT = "Say hello."
"""Library-owned, so that warming up never puts a case into a server's prompt cache."""
WARM_UP_TOKENS = 1
CHAT_ROUTES = frozenset({Route.CHAT_COMPLETIONS, Route.NATIVE_CHAT})


def generation_of(case: Case, plan: CollectionPlan, target: PlanTarget) -> Generation:
    """The generation of a case on a target; a text case becomes one user message on a chat route."""
    rule = plan.generation
    chat = Route(target.route) in CHAT_ROUTES
    messages = case.messages if case.messages is not None or not chat else (("user", case.prompt or ""),)
    return Generation(
        model_id=target.model.id,
        max_tokens=min(case.max_tokens or rule.maximum_output_tokens, rule.maximum_output_tokens),
        stream=Framing(target.framing) is not Framing.JSON,
        messages=tuple(Message(Role(role), content) for role, content in messages)
        if messages is not None and chat
        else None,
        prompt=None if chat else case.prompt,
        temperature=rule.temperature if rule.temperature is not None else case.temperature,
        top_p=rule.top_p if rule.top_p is not None else case.top_p,
        seed=rule.seed if rule.seed is not None else case.seed,
        stop=case.stop or (),
    )


def warm_up_generation(plan: CollectionPlan, target: PlanTarget) -> Generation:
    """A one-token generation that belongs to no case."""
    chat = Route(target.route) in CHAT_ROUTES
    return Generation(
        model_id=target.model.id,
        max_tokens=WARM_UP_TOKENS,
        stream=Framing(target.framing) is not Framing.JSON,
        messages=(Message(Role.USER, WARM_UP_PROMPT),) if chat else None,
        prompt=None if chat else WARM_UP_PROMPT,
        temperature=plan.generation.temperature,
        top_p=plan.generation.top_p,
        seed=plan.generation.seed,
    )


def request_of(case: Case, plan: CollectionPlan, target: PlanTarget, profile: RuntimeProfile) -> BuiltRequest:
    """The exact request of one execution."""
    return build_request(profile, Route(target.route), generation_of(case, plan, target))
