"""What is known about every endpoint of every study: its newest receipt of each capability, and what is wrong with it.

Rules:

1. A receipt belongs to an endpoint where it has its binding; a receipt of the same alias whose binding no study has any
   more belongs to what stood there before, and still counts as the endpoint's until a newer one replaces it.
2. Only the newest receipt of a capability speaks: of those for the endpoint's own identity, if there is one. It has at
   most one problem, the first of ``Problem`` that holds.
3. Drift is judged against the study's last planned window: against the identity that its plan names, and against what
   the server itself reported in the receipts that the plan pins. An answer that failed reports nothing, so it is no drift.

Nothing is sent. No line holds an origin, a secret or the name of a variable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tasc_collector.canonical import digest
from tasc_collector.contracts.collection import CollectionPlan, PlanTarget
from tasc_collector.contracts.operations import KeyRing
from tasc_collector.contracts.receipt import CapabilityReceipt
from tasc_collector.contracts.scalars import timestamp_ms
from tasc_collector.contracts.study import EndpointFile
from tasc_collector.errors import TascError
from tasc_collector.probes.judgement import ProbeReason
from tasc_pipeline.home import keys, receipts
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.studies import LoadedStudy, load_study, study_ids
from tasc_pipeline.home.window_index import window_facts
from tasc_pipeline.home.windows import WindowFolder

ENDPOINTS_DOMAIN: Final = "tasc/runtime-endpoints/v1"
_IDENTITY: Final = ("runtime", "backend", "model", "configuration_digest")
_REPORTED: Final = ("runtime_build", "backend", "model_id", "model_revision", "configuration_digest")
_OTHER_SERVER: Final = frozenset(
    {
        ProbeReason.BUILD_DIFFERS.value,
        ProbeReason.REVISION_DIFFERS.value,
        ProbeReason.MODEL_ABSENT.value,
        ProbeReason.MODEL_TWICE.value,
        ProbeReason.REMOTE_MODEL.value,
    }
)
"""Reasons with which an answer contradicts what the operator declares."""


class Problem(StrEnum):
    """What can be wrong with the newest receipt, gravest first."""

    ANOTHER_BUILD = "another-build"
    ANOTHER_IDENTITY = "another-identity"
    """Backend, model, configuration or binding are not the endpoint's."""
    SERVER_DIFFERS = "server-differs"
    """The answer itself contradicts what is declared."""
    DRIFTED = "drifted"
    """The identity is another than in the study's last window."""
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class ReceiptLine:
    """The newest receipt of one capability of one endpoint.

    Args:
        study_id: the study.
        alias: alias of the endpoint.
        runtime: runtime and build that the study declares.
        capability: what was probed.
        state: supported, unsupported or unknown.
        reason: why, one word.
        observed_at: when.
        valid_until: until when it holds.
        age_s: seconds since the observation.
        digest: the receipt's digest.
        problem: what is wrong with it, if anything.
        detail: the field that differs, where one does.
    """

    study_id: str
    alias: str
    runtime: str
    capability: str
    state: str
    reason: str
    observed_at: str
    valid_until: str
    age_s: float
    digest: str
    problem: Problem | None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class EndpointsView:
    """Everything that is known.

    Args:
        endpoints: (study, alias) of every endpoint, with or without a receipt.
        lines: the newest receipts.
        unreadable: studies that cannot be read.
        untrusted: receipt files that cannot be trusted.
    """

    endpoints: tuple[tuple[str, str], ...]
    lines: tuple[ReceiptLine, ...]
    unreadable: tuple[str, ...]
    untrusted: tuple[str, ...]

    @property
    def problems(self) -> tuple[ReceiptLine, ...]:
        """Lines with a problem."""
        return tuple(line for line in self.lines if line.problem is not None)

    @property
    def data_version(self) -> str:
        """Changes with every newer receipt, and with nothing else: not with the clock."""
        return versions_digest(self.lines)


def versions_digest(lines: Iterable[ReceiptLine]) -> str:
    """Digest over the receipts of some lines."""
    return digest(ENDPOINTS_DOMAIN, sorted([line.study_id, line.alias, line.capability, line.digest] for line in lines))


def endpoints_view(home: Home, as_of: str) -> EndpointsView:
    """Read every study and every stored receipt.

    Args:
        home: the state folder.
        as_of: the instant for ages and validity.
    """
    ring = keys.read_ring(home)
    found = receipts.stored(home, ring)
    studies: list[LoadedStudy] = []
    unreadable: list[str] = []
    for study_id in study_ids(home):
        try:
            studies.append(load_study(home, study_id))
        except TascError:
            unreadable.append(study_id)
    known = {binding for loaded in studies for binding in loaded.bindings.values()}
    by_digest = {item.digest: item for item in found.receipts}
    last = _last_plans(home, ring)
    endpoints: list[tuple[str, str]] = []
    lines: list[ReceiptLine] = []
    for loaded in studies:
        plan = last.get(loaded.study.study_id)
        targets = {} if plan is None else {target.endpoint_alias: target for target in plan.targets}
        for profile_id, endpoint in loaded.endpoints.items():
            endpoints.append((loaded.study.study_id, endpoint.alias))
            binding = loaded.bindings[profile_id]
            newest: dict[str, CapabilityReceipt] = {}
            for receipt in found.receipts:  # oldest first, so that the newest stays
                own = receipt.endpoint_binding_digest
                if own == binding or (receipt.endpoint_alias == endpoint.alias and own not in known):
                    before = newest.get(receipt.capability)
                    if before is None or _fits(receipt, endpoint, binding) or not _fits(before, endpoint, binding):
                        newest[receipt.capability] = receipt
            target = targets.get(endpoint.alias)
            for capability in sorted(newest):
                problem, detail = _problem(newest[capability], endpoint, binding, target, by_digest, as_of)
                lines.append(_line(loaded.study.study_id, endpoint, newest[capability], as_of, problem, detail))
    return EndpointsView(tuple(endpoints), tuple(lines), tuple(unreadable), found.untrusted)


def _line(
    study_id: str, endpoint: EndpointFile, receipt: CapabilityReceipt, as_of: str, problem: Problem | None, detail: str
) -> ReceiptLine:
    return ReceiptLine(
        study_id,
        endpoint.alias,
        f"{endpoint.runtime.profile_id} {endpoint.runtime.build}",
        receipt.capability,
        receipt.state,
        receipt.reason,
        receipt.observed_at,
        receipt.valid_until,
        max(0, timestamp_ms(as_of) - timestamp_ms(receipt.observed_at)) / 1000,
        receipt.digest,
        problem,
        detail,
    )


def _fits(receipt: CapabilityReceipt, endpoint: EndpointFile, binding: str) -> bool:
    same = all(getattr(receipt, name) == getattr(endpoint, name) for name in _IDENTITY)
    return same and receipt.endpoint_binding_digest == binding


def _problem(
    receipt: CapabilityReceipt,
    endpoint: EndpointFile,
    binding: str,
    target: PlanTarget | None,
    by_digest: Mapping[str, CapabilityReceipt],
    as_of: str,
) -> tuple[Problem | None, str]:
    """Rule 2."""
    for name in _IDENTITY:
        if getattr(receipt, name) != getattr(endpoint, name):
            return Problem.ANOTHER_BUILD if name == "runtime" else Problem.ANOTHER_IDENTITY, name
    if receipt.endpoint_binding_digest != binding:
        return Problem.ANOTHER_IDENTITY, "endpoint_binding_digest"
    if receipt.reason in _OTHER_SERVER:
        return Problem.SERVER_DIFFERS, receipt.reason
    drifted = None if target is None else _drift(receipt, target, by_digest)
    if drifted is not None:
        return Problem.DRIFTED, drifted
    return (Problem.EXPIRED, "") if receipt.valid_until <= as_of else (None, "")


def _drift(receipt: CapabilityReceipt, target: PlanTarget, by_digest: Mapping[str, CapabilityReceipt]) -> str | None:
    """The field in which an endpoint is another than in the last window (rule 3)."""
    for name in _IDENTITY:
        if getattr(receipt, name) != getattr(target, name):
            return name
    if receipt.state != "supported":
        return None
    for pinned_digest in target.capability_receipt_digests:
        pinned = by_digest.get(pinned_digest)
        if pinned is None or pinned.capability != receipt.capability:
            continue
        for name in _REPORTED:
            before = getattr(pinned.identity_verification, name)
            if before.basis == "provider-reported" and getattr(receipt.identity_verification, name) != before:
                return name
    return None


def _last_plans(home: Home, ring: KeyRing) -> dict[str, CollectionPlan]:
    """The plan that was issued last, by study; a window whose plan cannot be read is another check's matter.

    The index says which it is, so that one plan per study is read and its signature checked, however many windows there are.
    """
    planned = [item for item in window_facts(home).values() if item.plan_issued_at is not None]
    last: dict[str, CollectionPlan] = {}
    for item in sorted(planned, key=lambda item: (item.plan_issued_at or "", item.window_key), reverse=True):
        if item.study_id in last:
            continue
        try:
            plan = WindowFolder(home, item.window_key).plan(ring).record
        except TascError:
            continue
        last.setdefault(plan.study_id, plan)
    return last
