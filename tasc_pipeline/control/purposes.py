"""What each purpose of a collection is for: which study, which state of its controller, which policy, which cases. Pure.

Rules:

1. A comparison study has one purpose, ``comparison``; it has no controller and its own digest stands for the policy.
2. A decision study feeds each state of its controller by its own purpose (``controller_table``). A plan in another
   state is refused: nobody collects holdout data before a policy is nominated, or a window for a policy that is not.
3. Development is collected under the control policy (everything to the champion), everything later under the policy
   that the controller selected. That policy was issued no later than the window's start.
4. Development and holdout take the cases of their own groups, all of them; the window's sample is for online purposes.
5. Only ``window`` embeds the original's shadow run plan, which is valid in SHADOW_ASSESSING alone. What later states
   need is collected as ``monitoring``, with the same evidence and a manifest, under our plan's own digest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from tasc_collector.contracts.collection import Purpose
from tasc_collector.contracts.controller import ControllerSnapshot
from tasc_collector.contracts.membership import SplitMembership
from tasc_collector.contracts.policy import PolicyBundle, policy_conflict
from tasc_collector.contracts.protocol import ExperimentProtocol
from tasc_collector.contracts.window import WindowDeclaration
from tasc_collector.errors import DigestMismatch, InputError, NotAuthorized
from tasc_collector.shadow.cases import Case
from tasc_collector.shadow.membership import group_split
from tasc_pipeline.control.controller_table import PLAN_STATES, plan_refusal

StudyKind = Literal["comparison", "decision"]
PolicyChoice = Literal["rules", "control", "selected"]


@dataclass(frozen=True, slots=True)
class PurposeRule:
    """What holds for one purpose.

    Attributes:
        kind: of the study.
        policy: whose digest the traces carry.
        split: whose cases are collected, and the split of the traces.
        manifest: whether the closed window gets a manifest beside its link.
    """

    kind: StudyKind
    policy: PolicyChoice
    split: Literal["dev", "holdout", "online"]
    manifest: bool


PURPOSES: Final[Mapping[Purpose, PurposeRule]] = {
    "comparison": PurposeRule("comparison", "rules", "online", manifest=True),
    "development": PurposeRule("decision", "control", "dev", manifest=False),
    "holdout": PurposeRule("decision", "selected", "holdout", manifest=False),
    "window": PurposeRule("decision", "selected", "online", manifest=True),
    "monitoring": PurposeRule("decision", "selected", "online", manifest=True),
}
"""Every purpose and its rule; ``controller_table.PLAN_STATES`` says in which states of the controller each is collected."""


def allowed_purposes(kind: StudyKind, snapshot: ControllerSnapshot | None) -> tuple[Purpose, ...]:
    """The purposes for which a plan may be issued now, in the order of the table."""
    return tuple(
        purpose
        for purpose, rule in PURPOSES.items()
        if rule.kind == kind
        and (purpose not in PLAN_STATES or (snapshot is not None and plan_refusal(snapshot, purpose) is None))
    )


def choose_purpose(
    study_id: str, kind: StudyKind, snapshot: ControllerSnapshot | None, asked: Purpose | None
) -> Purpose:
    """The purpose of a new plan: the one that was asked for, or the only one that is allowed now.

    Raises:
        InputError: the study's kind has no such purpose, or several are allowed and none was named.
        NotAuthorized: the controller is in a state in which this purpose is not collected.
    """
    of_kind = [purpose for purpose, rule in PURPOSES.items() if rule.kind == kind]
    if asked is not None and asked not in of_kind:
        raise InputError(
            f"a {kind} study collects nothing for purpose {asked}",
            where=study_id,
            field="purpose",
            rule=f"one of {', '.join(of_kind)}",
            way_out=f"name one of them: --purpose {of_kind[0]}",
        )
    allowed = allowed_purposes(kind, snapshot)
    if asked is None and len(allowed) > 1:
        raise InputError(
            "several purposes are possible now",
            where=study_id,
            field="purpose",
            rule=f"one of {', '.join(allowed)}",
            way_out=f"name one of them: --purpose {allowed[0]}",
        )
    if not allowed or (asked is not None and asked not in allowed):
        state = "DRAFT" if snapshot is None else snapshot.state
        needed = [state for purpose in ([asked] if asked else of_kind) for state in PLAN_STATES.get(purpose, ())]
        raise NotAuthorized(
            f"a plan {f'for {asked} ' if asked else ''}is not issued while the controller is in {state}",
            where=study_id,
            field="purpose",
            rule=f"issued in {' or '.join(dict.fromkeys(needed))}",
            way_out=f"see what the controller allows next: tasc controller show {study_id}",
        )
    return asked if asked is not None else allowed[0]


def frozen_policy(
    purpose: Purpose,
    protocol: ExperimentProtocol,
    policies: Mapping[str, PolicyBundle],
    snapshot: ControllerSnapshot | None,
    declaration: WindowDeclaration,
) -> PolicyBundle:
    """The policy that a decision study's window is collected under (rule 3).

    Args:
        purpose: of the plan, one of a decision study.
        protocol: the study's protocol.
        policies: the study's policy bundles by their digest.
        snapshot: of the study's controller.
        declaration: of the window.

    Raises:
        DigestMismatch: the controller selected a policy that the study has no file of, or whose dates differ.
        NotAuthorized: the policy is not one that the protocol allows, or was issued after the window's start.
    """
    where = protocol.study_id
    if PURPOSES[purpose].policy == "control":
        found = next((policy for policy in policies.values() if policy.kind == "expert-only"), None)
        wanted = "of the control, expert-only,"
    else:
        selected = None if snapshot is None else snapshot.selected_policy
        found = None if selected is None else policies.get(selected.policy_digest)
        wanted = "that the controller selected"
        if (
            found is not None
            and selected is not None
            and (found.issued_at, found.expires_at) != (selected.issued_at, selected.expires_at)
        ):
            found = None
    if found is None:
        raise DigestMismatch(
            f"the study has no policy bundle {wanted}",
            where=where,
            field="policies",
            rule="every policy of the protocol's space is a file in the study's folder",
            way_out="restore the files of the study's policies/ folder",
        )
    conflict = policy_conflict(found, protocol)
    if conflict is not None:
        raise NotAuthorized(conflict, where=where, field="policies", way_out="restore the study's policy files")
    if found.issued_at > declaration.event_time_start_inclusive:
        raise NotAuthorized(
            "the policy was issued after the window's start",
            where=declaration.window_key,
            field="policyDigest",
            rule=f"issued {found.issued_at}, the window starts {declaration.event_time_start_inclusive}",
            way_out=f"seal a window that starts later: tasc seal {where}",
        )
    return found


def cases_of(purpose: Purpose, membership: SplitMembership | None, cases: Iterable[Case]) -> tuple[Case, ...]:
    """The cases that a purpose collects (rule 4); all of them for an online one."""
    split = PURPOSES[purpose].split
    if split == "online" or membership is None:
        return tuple(cases)
    return tuple(case for case in cases if group_split(membership, case.group_id) == split)
