"""Collecting a window with everything that the state folder holds.

What it leaves is published by ``steps.publish``. Nothing here loads what publishing needs (Arrow, DuckDB): a window waits
for its first call while modules load.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace

from tasc_collector.contracts.instance import RuntimeInstance
from tasc_collector.contracts.scalars import timestamp_ms, timestamp_of_ms
from tasc_collector.identity import PayloadKey
from tasc_collector.invocation.admission import CapabilityAdmission
from tasc_collector.invocation.prepare import CallTarget
from tasc_collector.journal import is_sealed
from tasc_collector.limits import STANDING_LOOK_EVERY_S
from tasc_collector.runtimes.profile import Framing, Route
from tasc_collector.secrets import process_secrets
from tasc_collector.shadow.cases import Case
from tasc_collector.shadow.context import RunContext
from tasc_collector.shadow.envelopes import EnvelopeTerms
from tasc_collector.shadow.progress import Snapshot
from tasc_collector.shadow.runner import RunResult, run_blocking
from tasc_collector.transport.clock import Clock, SystemClock
from tasc_pipeline.home import keys, signers
from tasc_pipeline.home.layout import Home
from tasc_pipeline.steps.admission import admission, endpoint_profile
from tasc_pipeline.steps.approved import ApprovedPlan, LoadedReceipts, load_approved, same_files, verify_receipts
from tasc_pipeline.steps.arrival_trace import study_arrivals
from tasc_pipeline.steps.cases import purpose_cases
from tasc_pipeline.steps.metrics import sampling
from tasc_pipeline.steps.sampling import sampling_devices
from tasc_pipeline.steps.spending import window_reserved
from tasc_pipeline.steps.standing import standing_word
from tasc_pipeline.steps.subjects import authentication_of
from tasc_pipeline.steps.watch import both

TERMINAL_EVERY_S = 1.0
"""How often a watching terminal is told."""


def collect(
    home: Home,
    window_key: str,
    *,
    show: Callable[[Snapshot], None],
    show_every_s: float = 1.0,
    send: bool = True,
    clock: Clock | None = None,
    look_every_s: float = STANDING_LOOK_EVERY_S,
) -> RunResult:
    """Collect an approved window, or finish it where an earlier run left off.

    Args:
        home: the state folder.
        window_key: the window.
        show: progress.
        show_every_s: seconds between two calls of ``show``.
        send: False to settle without sending; the case file is then not read.
        clock: both clocks; the system's if None.
        look_every_s: how old the last look at authorization and keys may be when a call is sent.

    Raises:
        InputError: a record, signature, pin, case, ceiling or bound refuses; nothing was sent.
        JournalError: the journal is locked, corrupt, full or failed.
    """
    approved = load_approved(home, window_key)
    send = send and not approved.is_revision
    if send:
        same_files(approved)
    cases = purpose_cases(approved.study, approved.plan.record.purpose) if send else ()
    context = replace(run_context(home, approved, cases, clock), look_every_s=look_every_s)
    if not is_sealed(context.folder):
        signers.require_authorities(approved.ring, approved.study, timestamp_of_ms(context.wall_ms()), send=send)
    show, show_every_s = both(show, show_every_s, TERMINAL_EVERY_S)
    if not send:  # nothing is sent under a revision: its run is that of revision 1, which is closed
        return run_blocking(context, show=show, show_every_s=show_every_s, send=False)
    may = _may_send(context)
    with (
        window_reserved(home, approved, timestamp_of_ms(context.wall_ms())) if may else nullcontext(),
        sampling(home, approved) as scrapes,
        sampling_devices(home, approved) as devices,
    ):
        result = run_blocking(context, show=show, show_every_s=show_every_s, send=may)
        if result.sent_calls == 0:
            # samples go with calls; without any, running again must leave the same bytes
            scrapes.forget()
            devices.forget()
        return result


def _may_send(context: RunContext) -> bool:
    """Whether anything can still be sent; asked once, so that a clock that steps back sends nothing that is not paid for."""
    over = context.wall_ms() >= timestamp_ms(context.declaration.event_time_end_exclusive)
    return not over and not is_sealed(context.folder)


def run_context(home: Home, approved: ApprovedPlan, cases: tuple[Case, ...], clock: Clock | None = None) -> RunContext:
    """Everything a run works with; keys are read here."""
    study, plan = approved.study.study, approved.plan.record
    payload, clock = payload_key(home, approved), clock or SystemClock()
    admitted = verify_receipts(home, approved.ring, plan) if cases else None
    return RunContext(
        terms=_terms(home, approved, payload),
        case_set=approved.case_set,
        cases=cases,
        calls={target.profile_id: _call(home, approved, target.profile_id, admitted) for target in plan.targets},
        cost_model=None if approved.study.cost_model is None else approved.study.cost_model.record,
        folder=home.run(plan.window_key),
        journal_key=keys.hmac_key(home, study.keys.journal_hmac),
        secrets=process_secrets(home.keys),
        clock=clock,
        arrivals=study_arrivals(approved.study, plan.load_model) if cases else None,
        look=standing_word(home, approved, clock) if cases else None,
    )


def payload_key(home: Home, approved: ApprovedPlan) -> PayloadKey:
    """The study's payload key."""
    study = approved.study.study
    return keys.payload_key(home, study.study_id, study.keys.payload_key_id, study.keys.payload_hmac)


def _terms(home: Home, approved: ApprovedPlan, payload: PayloadKey) -> EnvelopeTerms:
    study, rules, plan = approved.study.study, approved.study.rules, approved.plan.record
    dispatch = keys.authority_key(home, study.keys.dispatch_signing, rules.dispatch_authority)
    collector = keys.authority_key(home, study.keys.collector_signing, rules.collector_authority)
    return EnvelopeTerms(
        plan=plan,
        declaration=approved.collected_under,
        bound_plan_digest=_bound_plan(approved),
        route_signal=getattr(rules, "route_signal", None),
        payload_key=payload,
        dispatch_key=dispatch,
        dispatch_key_id=rules.dispatch_authority.key_id,
        collector_key=collector,
        collector_key_id=rules.collector_authority.key_id,
    )


def _bound_plan(approved: ApprovedPlan) -> str:
    embedded = approved.plan.record.shadow_run_plan
    return approved.digest if embedded is None else str(embedded["planDigest"])


def _call(home: Home, approved: ApprovedPlan, profile_id: str, receipts: LoadedReceipts | None) -> CallTarget:
    target = approved.plan.record.target(profile_id)
    endpoint = approved.study.endpoints[profile_id]
    profile = endpoint_profile(home, endpoint)
    admitted: CapabilityAdmission | None = None
    if receipts is not None:
        admitted = admission(profile, target, receipts.of(profile_id), approved.plan.record.issued_at)
    return CallTarget(
        policy=approved.study.policy.record,
        alias=target.endpoint_alias,
        instance=RuntimeInstance(
            endpoint_descriptor_digest=target.endpoint_binding_digest,
            runtime=target.runtime,
            backend=target.backend,
            model=target.model,
            configuration_digest=target.configuration_digest,
        ),
        profile=profile,
        route=Route(target.route),
        framing=Framing(target.framing),
        limits=target.http_limits,
        authentication=authentication_of(endpoint),
        admission=admitted,
        extension=None if approved.study.extension is None else approved.study.extension.record,
        orchestration_descriptor_digest=approved.study.descriptor_digest(profile_id),
    )
