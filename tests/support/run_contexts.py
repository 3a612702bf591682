"""A window without a state folder: declaration, signed plan, cases, targets and keys, ready for the runner."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tasc_collector.contracts.authority import AuthorityKey
from tasc_collector.contracts.collection import CaseSet, CollectionPlan, GenerationRule, PlanTarget
from tasc_collector.contracts.http_limits import HttpLimits
from tasc_collector.contracts.membership import MembershipRule, membership_digest
from tasc_collector.contracts.scalars import timestamp_of_ms
from tasc_collector.contracts.verification import StudyTerms
from tasc_collector.contracts.window import WindowDeclaration
from tasc_collector.contracts.work_budget import WorkBudget
from tasc_collector.identity import PayloadKey
from tasc_collector.invocation.admission import CapabilityAdmission
from tasc_collector.invocation.prepare import CallTarget
from tasc_collector.runtimes.profile import Framing, Route
from tasc_collector.secrets import SecretStore
from tasc_collector.shadow.budget import worst_case
from tasc_collector.shadow.cases import case_root, case_set, read_cases
from tasc_collector.shadow.context import RunContext
from tasc_collector.shadow.envelopes import EnvelopeTerms
from tasc_collector.shadow.executions import planned_pairs
from tasc_collector.signing import SigningKey
from tasc_collector.transport.clock import Clock, SystemClock
from tests.support.targets import target_for

STUDY = "study-1"
RULES = "sha256:" + "d" * 64
PAYLOAD = PayloadKey(STUDY, "payload-1", bytes(range(32)))
JOURNAL_KEY = bytes(range(32, 64))
HOUR_MS = 3_600_000


@cache
def signing_keys() -> tuple[SigningKey, SigningKey, SigningKey]:
    """Keys of operator, dispatch and collector; made up, and the same in every process, so that a resume has them."""
    operator, dispatch, collector = (
        SigningKey(Ed25519PrivateKey.from_private_bytes(bytes([number] * 32))) for number in (1, 2, 3)
    )
    return operator, dispatch, collector


def authority(number: int) -> AuthorityKey:
    """The public side of a key of ``signing_keys``."""
    return AuthorityKey(
        key_id=("operator-1", "dispatch-1", "collector-1")[number],
        public_key_spki=signing_keys()[number].public_key.spki,
    )


def study_terms(now_ms: int) -> StudyTerms:
    """What traces of these windows are verified against."""
    created, expires = timestamp_of_ms(now_ms - 24 * HOUR_MS), timestamp_of_ms(now_ms + 24 * HOUR_MS)
    return StudyTerms(STUDY, RULES, created, expires, authority(1), authority(2))


@dataclass(frozen=True)
class Setup:
    """What a test wants of a window; everything else is the same in all.

    Args:
        origins: origin of each profile's endpoint, by profile id; the first is the champion.
        cases: prompts.
        plan: fields of the plan that differ.
        starts_ms: start of the window, milliseconds from now.
        ends_ms: end of the window, milliseconds from now.
        targets: how a profile's call differs, by profile id.
        limits: bounds of a call.
        at_ms: what the plan takes for now, milliseconds since 1970; the clock's time if None.
    """

    origins: Mapping[str, str]
    cases: Sequence[str] = ("one", "two", "three")
    plan: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    starts_ms: int = -HOUR_MS
    ends_ms: int = HOUR_MS
    targets: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    limits: HttpLimits = dataclasses.field(default_factory=HttpLimits)
    at_ms: int | None = None


def run_context(setup: Setup, folder: Path, *, clock: Clock | None = None, **changes: Any) -> RunContext:
    """The context of a run; the same setup at the same time gives the same plan."""
    clock = clock or SystemClock()
    now_ms = clock.wall_ns() // 1_000_000 if setup.at_ms is None else setup.at_ms
    operator, dispatch, collector = signing_keys()
    declaration = _declaration(setup, now_ms, operator)
    calls = {name: _call(origin, setup, name, now_ms) for name, origin in setup.origins.items()}
    cases = read_cases(
        [text.encode() for text in setup.cases],
        "text-lines",
        where="cases",
        replicates=int(setup.plan.get("replicates", 1)),
    )
    planned = case_set(cases, STUDY, PAYLOAD, maximum_output_tokens=16)
    champion = next(iter(setup.origins))
    targets = tuple(_target(name, call, champion) for name, call in sorted(calls.items()))
    fields: dict[str, Any] = {
        "study_id": STUDY,
        "purpose": "comparison",
        "window_key": declaration.window_key,
        "declaration_digest": declaration.digest,
        "protocol_digest": RULES,
        "policy_digest": RULES,
        "targets": targets,
        "pair_isolation": "serial",
        "load_model": {"kind": "closed", "concurrency": 2},
        "generation": GenerationRule(maximum_output_tokens=16),
        "cases": CaseSet(count=len(cases), root=case_root(planned, PAYLOAD), key_id=PAYLOAD.key_id),
        "replicates": 1,
        "warm_up_calls_per_profile": 0,
        "maximum_attempts": 2,
        "attempt_timeout_ms": 5_000,
        "overload_stop_after": 5,
        "network_extension_digest": None,
        "analysis_plan_digest": None,
        "cost_model_digest": None,
        "issued_at": timestamp_of_ms(now_ms + setup.starts_ms - HOUR_MS),
        "expires_at": declaration.ingestion_watermark,
        "authorization_digest": None,
        "shadow_run_plan": None,
        **setup.plan,
    }
    largest = WorkBudget(**dict.fromkeys(WorkBudget.model_fields, 10**12))
    draft = CollectionPlan.sign_with(operator, "operator-1", **{"budget": largest, **fields})
    plan = draft if "budget" in fields else _budgeted(draft, declaration, planned, fields, operator)
    terms = EnvelopeTerms(
        plan, declaration, plan.digest, None, PAYLOAD, dispatch, "dispatch-1", collector, "collector-1"
    )
    arguments: dict[str, Any] = {
        "terms": terms,
        "case_set": planned,
        "cases": cases,
        "calls": calls,
        "cost_model": None,
        "folder": folder,
        "journal_key": JOURNAL_KEY,
        "secrets": SecretStore({}),
        "clock": clock,
    }
    return RunContext(**{**arguments, **changes})


def _call(origin: str, setup: Setup, name: str, now_ms: int) -> CallTarget:
    """A call target; a chat route is admitted as a pinned receipt would admit it."""
    call = target_for(origin, limits=setup.limits, **setup.targets.get(name, {}))
    if call.route is Route.COMPLETIONS:
        return call
    admission = CapabilityAdmission(call.instance, call.route, call.framing, now_ms + 24 * HOUR_MS, ())
    return dataclasses.replace(call, admission=admission)


def _declaration(setup: Setup, now_ms: int, operator: SigningKey) -> WindowDeclaration:
    rule = MembershipRule(seed="seed-1", sample_basis_points=10_000)
    start, end = now_ms + setup.starts_ms, now_ms + setup.ends_ms
    return WindowDeclaration.sign_with(
        operator,
        "operator-1",
        study_id=STUDY,
        study_kind="comparison",
        protocol_digest=RULES,
        window_id="window-1",
        revision=1,
        predecessor_digest=None,
        window_class="observation",
        event_time_start_inclusive=timestamp_of_ms(start),
        event_time_end_exclusive=timestamp_of_ms(end),
        ingestion_watermark=timestamp_of_ms(end + HOUR_MS),
        membership_rule=rule,
        membership_digest=membership_digest("window-1", RULES, rule),
        declared_at=timestamp_of_ms(start - HOUR_MS),
        authorization_digest=None,
    )


def _target(profile_id: str, call: CallTarget, champion: str) -> PlanTarget:
    instance = call.instance
    return PlanTarget(
        profile_id=profile_id,
        role="champion" if profile_id == champion else "candidate",
        endpoint_alias=call.alias,
        endpoint_binding_digest=instance.endpoint_descriptor_digest,
        execution_profile_digest="sha256:" + "e" * 64,
        transport="loopback-http",
        runtime=instance.runtime,
        wire_base=None,
        backend=instance.backend,
        model=instance.model,
        configuration_digest=instance.configuration_digest,
        route=Route(call.route).value,
        framing=Framing(call.framing).value,
        authentication_reference=None if call.authentication is None else call.authentication.reference,
        http_limits=call.limits,
        capability_receipt_digests=(),
        lane_width=8,
    )


def _budgeted(
    draft: CollectionPlan, declaration: WindowDeclaration, planned: Any, fields: dict[str, Any], operator: SigningKey
) -> CollectionPlan:
    pairs = list(planned_pairs(draft, declaration, planned))
    work = worst_case(
        draft,
        cases=len(planned.entries),
        replicates=len(pairs),
        request_bytes=[4_096] * (len(pairs) * len(draft.targets)),
    )
    names = {name: name.removeprefix("max_") for name in WorkBudget.model_fields}
    budget = WorkBudget(**{name: getattr(work, short) for name, short in names.items()})
    return CollectionPlan.sign_with(operator, "operator-1", **fields, budget=budget)


class SteppedClock:
    """The machine's monotonic clock, and a wall clock that the test sets.

    Args:
        steps_ms: what each reading of the wall clock adds to what the machine says; the last one stays.
    """

    def __init__(self, *steps_ms: int) -> None:
        self._steps = itertools.chain(steps_ms, itertools.repeat(steps_ms[-1] if steps_ms else 0))
        self.readings = 0

    def now_ns(self) -> int:
        return SystemClock.now_ns()

    def wall_ns(self) -> int:
        self.readings += 1
        return SystemClock.wall_ns() + next(self._steps) * 1_000_000
