"""Everything that is checked before a run opens a file or a socket.

1. The parts fit: declaration, case root and every call target are those of the plan.
2. The cases at hand are planned ones, unchanged; what they bring into an envelope is valid before anything is sent.
3. A trace of arrivals is the plan's, and reaches to the last pair.
4. Every profile's call can be prepared, and its trace written down: its first case is held to the envelope's schema. Every
   case's request fits into the call's limits.
5. The worst case is within the plan's budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from tasc_collector.contracts.collection import CollectionPlan, OpenLoad, PlanTarget
from tasc_collector.contracts.envelope import RouteSignalObservation
from tasc_collector.contracts.scalars import timestamp_of_ms
from tasc_collector.errors import DigestMismatch, InputError
from tasc_collector.invocation.prepare import CallTarget, prepare
from tasc_collector.shadow.arrivals import arrivals_digest
from tasc_collector.shadow.budget import check_budget, worst_case
from tasc_collector.shadow.cases import Case, case_root, check_cases
from tasc_collector.shadow.context import RunContext
from tasc_collector.shadow.envelopes import check_envelope, route_signal_of
from tasc_collector.shadow.executions import Pair, PlannedPair, pairs_of
from tasc_collector.shadow.requests import generation_of, request_of


def preflight(context: RunContext, planned: list[PlannedPair]) -> None:
    """All five checks; opens nothing.

    Raises:
        DigestMismatch: a part is not the plan's.
        InputError: a case is not the plan's or brings an invalid field, or a call cannot be prepared.
        NotAuthorized: a bound of the budget would be exceeded; says which and by how much.
    """
    _check_parts(context)
    check_cases(context.cases, context.case_set, context.terms.payload_key, where="cases")
    _check_signals(context)
    _check_arrivals(context, len(planned))
    _check_work(context, planned)


def _check_parts(context: RunContext) -> None:
    plan, declaration = context.plan, context.declaration
    pinned: list[tuple[str, object, object]] = [
        ("declarationDigest", plan.declaration_digest, declaration.digest),
        ("windowKey", plan.window_key, declaration.window_key),
        ("protocolDigest", plan.protocol_digest, declaration.protocol_digest),
        ("cases.root", plan.cases.root, case_root(context.case_set, context.terms.payload_key)),
        ("costModelDigest", plan.cost_model_digest, None if context.cost_model is None else context.cost_model.digest),
        ("targets", {target.profile_id for target in plan.targets}, set(context.calls)),
    ]
    for target in plan.targets:
        call = context.calls.get(target.profile_id)
        if call is not None:
            pinned.append((f"targets.{target.profile_id}", _planned_call(target, plan), _actual_call(call)))
    for name, wanted, found in pinned:
        if wanted != found:
            raise DigestMismatch(
                "this is not what the plan names",
                where=plan.window_key,
                field=name,
                rule="every part of a run is pinned by its plan",
                way_out="restore the window's and the study's files, or seal and plan a new window",
            )


def _planned_call(target: PlanTarget, plan: CollectionPlan) -> tuple[object, ...]:
    instance = (
        target.endpoint_binding_digest,
        target.runtime,
        target.backend,
        target.model,
        target.configuration_digest,
    )
    return (
        *instance,
        target.endpoint_alias,
        target.route,
        target.framing,
        target.http_limits.digest,
        target.authentication_reference,
        plan.network_extension_digest,
    )


def _actual_call(call: CallTarget) -> tuple[object, ...]:
    found = call.instance
    instance = (found.endpoint_descriptor_digest, found.runtime, found.backend, found.model, found.configuration_digest)
    return (
        *instance,
        call.alias,
        call.route.value,
        call.framing.value,
        call.limits.digest,
        None if call.authentication is None else call.authentication.reference,
        None if call.extension is None else call.extension.digest,
    )


def _check_signals(context: RunContext) -> None:
    """A signal that the envelope would refuse, or that was observed after now, must not be found out after a send."""
    now = timestamp_of_ms(context.wall_ms())
    for case in context.cases:
        signal: dict[str, Any] | None = route_signal_of(context.terms, case)  # Any: a JSON object
        if signal is None:
            continue
        try:
            observed = RouteSignalObservation.model_validate(signal).provenance.observed_at
        except ValidationError:
            observed = ""
        if not "" < observed <= now:
            raise _bad_signal(case)


def _bad_signal(case: Case) -> InputError:
    return InputError(
        "this route signal cannot stand in an envelope",
        where=case.case_id,
        field="routeSignal",
        rule="a finite value, a source id, and an instant in UTC with milliseconds that has passed",
        way_out="correct the case's line",
    )


def _check_arrivals(context: RunContext, pairs: int) -> None:
    load = context.plan.load_model
    if not isinstance(load, OpenLoad) or load.arrival != "trace":
        return
    arrivals: Sequence[float] = context.arrivals or ()
    if arrivals_digest(arrivals) != load.trace_digest:
        raise DigestMismatch(
            "the trace of arrivals is not the plan's",
            where=context.plan.window_key,
            field="loadModel.traceDigest",
            rule=f"the trace at hand has digest {arrivals_digest(arrivals)}",
            way_out="restore the arrivals file, or seal and plan a new window",
        )
    if len(arrivals) < pairs:
        raise InputError(
            f"the trace has {len(arrivals)} arrivals for {pairs} pairs",
            where=context.plan.window_key,
            field="loadModel",
            way_out="plan fewer cases or replicates, or use a longer trace",
        )


def _check_trace(context: RunContext, pair: Pair, target: PlanTarget) -> None:
    """What a plan allows and an envelope does not, such as a long model id, must not be found out after a send."""
    body = request_of(pair.case, context.plan, target, context.calls[target.profile_id].profile).body
    identity = context.terms.payload_key.identify(body)
    try:
        check_envelope(context.terms, pair, target, identity, at=timestamp_of_ms(context.wall_ms()))
    except InputError as error:
        raise InputError(
            "a trace of this target could not be written down",
            where=context.plan.window_key,
            field=f"targets.{target.profile_id}",
            rule=f"{error.field}: {error.rule or error.what}",
            way_out="correct it in the study, then seal and plan a new window",
        ) from None


def _request_bytes(case: Case, plan: CollectionPlan, target: PlanTarget, call: CallTarget) -> int:
    size, most = len(request_of(case, plan, target, call.profile).body), call.limits.max_request_bytes
    if size > most:
        raise InputError(
            f"the request of this case has {size} bytes, {size - most} too many",
            where=case.case_id,
            field=f"targets.{target.profile_id}.httpLimits.maxRequestBytes",
            rule=f"at most {most} bytes",
            way_out="shorten the case, or raise the limit in the study; then seal and plan a new window",
        )
    return size


def _check_work(context: RunContext, planned: list[PlannedPair]) -> None:
    plan = context.plan
    pairs = list(pairs_of(planned, context.cases))
    sizes: list[int] = []
    for target in plan.targets:
        call = context.calls[target.profile_id]
        size_of: dict[str, int] = {}
        for pair in pairs:
            case = pair.case
            if case.case_id not in size_of:
                size_of[case.case_id] = _request_bytes(case, plan, target, call)
            sizes.append(size_of[case.case_id])
        if pairs:
            _check_trace(context, pairs[0], target)
            prepare(
                call,
                generation_of(pairs[0].case, plan, target),
                payload_key=context.terms.payload_key,
                secrets=context.secrets,
                clock=context.clock,
                deadline_ms=min(plan.attempt_timeout_ms, call.limits.deadline_ms),
            )
    check_budget(
        plan,
        worst_case(plan, cases=len({pair.case_id for pair in planned}), replicates=len(planned), request_bytes=sizes),
    )
