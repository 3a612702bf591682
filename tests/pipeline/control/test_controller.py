"""The controller's table and rules: every state reached, every other fact refused with its rule, replay from the log."""

from __future__ import annotations

from typing import get_args

import pytest

from tasc_collector.contracts.controller import ControllerEvent, ControllerSnapshot, ControllerState
from tasc_collector.contracts.controller_facts import ControllerFact, SelectedPolicy
from tasc_collector.errors import DigestMismatch, InputError, NotAuthorized
from tasc_pipeline.control.controller import allowed_next, extend, refusal
from tasc_pipeline.control.controller_replay import Chain, check_anchor, replay
from tasc_pipeline.control.controller_table import FACTS, ROWS, STATES, plan_refusal, taken_in
from tests.support import controller_chain as c

ANY: dict[str, ControllerFact] = {
    fact.kind: fact
    for fact in (
        c.registered(), c.STARTED, c.READY, c.development(), c.SHADOW, c.holdout(), c.manifest(), c.window(), c.deployed(),
        c.drift(), c.expired(), c.RETIRED,
    )
}  # fmt: skip
LATE = "2026-09-02T00:00:00.000Z"


@pytest.mark.parametrize("state", STATES)
def test_every_state_is_reached_by_facts(state: ControllerState) -> None:
    snapshot = c.reached(state)
    assert snapshot.state == state
    assert snapshot.sequence == len(c.WALKS[state])
    assert ControllerSnapshot.from_value(snapshot.to_json()).record == snapshot


@pytest.mark.parametrize("state", STATES)
def test_a_state_takes_exactly_the_facts_of_the_table(state: ControllerState) -> None:
    taken = {row.fact for row in ROWS if row.state == state}
    snapshot = c.reached(state)
    for kind, fact in ANY.items():
        rule = refusal(snapshot, fact, c.AT)
        if kind in taken:
            assert rule is None or "is taken in" not in rule
            continue
        assert rule is not None
        with pytest.raises(NotAuthorized) as caught:
            extend(snapshot, fact, c.AT)
        assert caught.value.rule == rule and caught.value.field == state
        assert caught.value.way_out == "see what is allowed next and why: tasc controller show study"


@pytest.mark.parametrize(
    ("walk", "state"),
    [
        ((*c.WALKS["DEV_READY"], c.development("INSUFFICIENT_EVIDENCE")), "HOLD"),
        ((*c.WALKS["SHADOW_ASSESSING"], c.holdout("HOLD")), "HOLD"),
        ((*c.WALKS["SHADOW_ASSESSING"], c.holdout("INSUFFICIENT_EVIDENCE")), "HOLD"),
        ((*c.WALKS["SHADOW_ASSESSING"], c.holdout("STALE")), "STALE"),
        ((*c.WALKS["SHADOW_ASSESSING"], c.manifest()), "SHADOW_ASSESSING"),
        ((*c.WALKS["HOLDOUT_CONFIRMED"], c.manifest(2)), "HOLDOUT_CONFIRMED"),
        ((*c.WALKS["HOLDOUT_CONFIRMED"], c.window("HOLD")), "HOLD"),
        ((*c.WALKS["HOLDOUT_CONFIRMED"], c.window("INSUFFICIENT_EVIDENCE")), "HOLD"),
        ((*c.WALKS["HOLDOUT_CONFIRMED"], c.window("STALE")), "STALE"),
        ((*c.WALKS["PROMOTION_RECOMMENDED"], c.manifest(2)), "HOLDOUT_CONFIRMED"),
        ((*c.WALKS["PROMOTION_RECOMMENDED"], c.manifest(1, "window-2")), "HOLDOUT_CONFIRMED"),
        ((*c.WALKS["MONITORING"], c.manifest(1, "window-2")), "MONITORING"),
        ((*c.WALKS["MONITORING"], c.manifest(2), c.window("PASS", 13, 2)), "MONITORING"),
        ((*c.WALKS["MONITORING"], c.manifest(2), c.window("STALE", 13, 2)), "STALE"),
        ((*c.WALKS["MONITORING"], c.manifest(2), c.window("INSUFFICIENT_EVIDENCE", 13, 2)), "HOLD"),
    ],
)
def test_where_an_assessment_leads(walk: tuple[ControllerFact, ...], state: ControllerState) -> None:
    assert c.walk(*walk).state == state


def test_stale_keeps_every_reason_once_and_retirement_keeps_them() -> None:
    snapshot = c.walk(*c.WALKS["MONITORING"], c.drift(), c.drift("gpu-changed"), c.drift())
    assert (snapshot.state, snapshot.stale_reasons) == ("STALE", ("evaluator-changed", "gpu-changed"))
    retired = extend(snapshot, c.RETIRED, LATE).snapshot
    assert (retired.state, retired.stale_reasons) == ("RETIRED", ("evaluator-changed", "gpu-changed"))
    assert c.walk(*c.WALKS["DEV_READY"], c.development("STALE")).stale_reasons == ("development-assessment-stale",)


@pytest.mark.parametrize(
    ("walk", "fact", "at", "rule"),
    [
        ("DRAFT", c.registered(), "2026-07-19T00:00:00.000Z", "before the protocol's creation"),
        ("REGISTERED", c.STARTED, "2026-07-24T00:00:00.000Z", "time does not go back"),
        ("REGISTERED", c.STARTED, c.EXPIRES, "the protocol expired"),
        ("MONITORING", c.manifest(2), c.EXPIRES, "the protocol expired"),
        ("MONITORING", c.expired("2026-08-31T00:00:00.000Z"), LATE, "does not expire before"),
        ("MONITORING", c.expired(), c.AT, "does not expire before"),
        ("MONITORING", c.expired(LATE), "2026-09-01T12:00:00.000Z", "before it is seen"),
        ("DEV_READY", c.development(protocol_digest=c.d(99)), c.AT, "of the controller's protocol"),
        ("DEV_READY", c.development(dataset_digest=c.d(99)), c.AT, "the development evidence that was announced"),
        ("DEV_READY", c.development(trace_set_digest=c.d(99)), c.AT, "the development evidence that was announced"),
        (
            "DEV_READY",
            c.development(selected_policy=SelectedPolicy(policy_digest=c.d(2), issued_at=c.CREATED, expires_at=LATE)),
            c.AT,
            "expires with the protocol",
        ),
        (
            "DEV_READY",
            c.development(
                selected_policy=SelectedPolicy(
                    policy_digest=c.d(2), issued_at="2026-07-26T00:00:00.000Z", expires_at=c.EXPIRES
                )
            ),
            c.AT,
            "not recorded before it is issued",
        ),
        (
            "NOMINATED",
            c.SHADOW.model_copy(update={"frozen_policy_digest": c.d(99)}),
            c.AT,
            "the one that was nominated",
        ),
        ("SHADOW_ASSESSING", c.holdout(number=10), c.AT, "a decision is recorded once"),
        (
            "SHADOW_ASSESSING",
            c.holdout(selected_policy=c.POLICY.model_copy(update={"policy_digest": c.d(99)})),
            c.AT,
            "of the nominated policy",
        ),
        ("SHADOW_ASSESSING", c.manifest(protocol_digest=c.d(99)), c.AT, "of the controller's protocol"),
        ("SHADOW_ASSESSING", c.manifest(frozen_policy_digest=c.d(99)), c.AT, "the policy that was nominated"),
        ("SHADOW_ASSESSING", c.manifest(2), c.AT, "revision 1"),
        ("SHADOW_ASSESSING", c.manifest(ingestion_watermark=LATE), c.AT, "within the protocol's validity"),
        (
            "SHADOW_ASSESSING",
            c.manifest(ingestion_watermark="2026-07-25T00:00:00.001Z"),
            c.AT,
            "not recorded before its watermark",
        ),
        ("HOLDOUT_CONFIRMED", c.manifest(), c.AT, "a manifest is recorded once"),
        ("HOLDOUT_CONFIRMED", c.manifest(3), c.AT, "the next revision of this window is 2"),
        ("HOLDOUT_CONFIRMED", c.manifest(2, predecessor_manifest_digest=c.d(99)), c.AT, "names the manifest before"),
        (
            "HOLDOUT_CONFIRMED",
            c.manifest(2, event_time_end_exclusive="2026-07-23T00:59:00.000Z"),
            c.AT,
            "keeps the window's bounds",
        ),
        (
            "HOLDOUT_CONFIRMED",
            c.manifest(2, ingestion_watermark="2026-07-23T01:30:00.000Z"),
            c.AT,
            "never moves the watermark back",
        ),
        (
            "HOLDOUT_CONFIRMED",
            c.manifest(2, trace_set_digest=c.manifest().projection.trace_set_digest),
            c.AT,
            "changes a source or the capacity",
        ),
        ("HOLDOUT_CONFIRMED", c.window(window_id="window-2"), c.AT, "a window's manifest is recorded before"),
        ("HOLDOUT_CONFIRMED", c.window(evaluator_set_digest=c.d(99)), c.AT, "exactly the manifest's source sets"),
        ("MONITORING", c.window("HOLD", 13, 2), c.AT, "the window's newest revision"),
        ("PROMOTION_RECOMMENDED", c.deployed(policy_digest=c.d(99)), c.AT, "the nominated one"),
        ("PROMOTION_RECOMMENDED", c.deployed(observed_at=LATE), c.AT, "before it is made"),
        ("PROMOTION_RECOMMENDED", c.deployed(observed_at="2026-07-19T00:00:00.000Z"), c.AT, "protocol's validity"),
    ],
)
def test_a_fact_that_does_not_fit_is_refused_with_its_rule(walk: str, fact: ControllerFact, at: str, rule: str) -> None:
    with pytest.raises(NotAuthorized, match=rule):
        extend(c.reached(walk), fact, at)


def test_a_controller_without_a_manifest_has_nothing_to_assess() -> None:
    snapshot = c.walk(*c.WALKS["SHADOW_ASSESSING"], c.holdout())
    outlook = {item.fact: item for item in allowed_next(snapshot, c.AT)}
    assert not outlook["window-assessment-recorded"].allowed
    assert (
        outlook["window-assessment-recorded"].rule == "a window's manifest is recorded before its assessment; none was"
    )
    assert outlook["window-manifest-recorded"].allowed
    assert outlook["window-manifest-recorded"].leads_to == ("HOLDOUT_CONFIRMED",)


@pytest.mark.parametrize("state", STATES)
def test_what_is_allowed_next_is_what_is_taken(state: ControllerState) -> None:
    outlooks = allowed_next(c.reached(state), c.AT)
    assert [item.fact for item in outlooks] == list(FACTS)
    for item in outlooks:
        assert bool(item.leads_to) == (state in taken_in(item.fact))
        assert item.allowed or item.rule


def test_after_expiry_only_drift_expiry_and_retirement_are_allowed() -> None:
    allowed = {item.fact for item in allowed_next(c.reached("MONITORING"), LATE) if item.allowed}
    assert allowed == {"identity-drift-recorded", "protocol-expiry-observed", "controller-retired"}
    snapshot = extend(c.reached("MONITORING"), c.expired(), LATE).snapshot
    assert (snapshot.state, snapshot.stale_reasons) == ("STALE", ("protocol-expired",))


@pytest.mark.parametrize(
    ("purpose", "states"),
    [
        ("development", {"REGISTERED", "COLLECTING"}),
        ("holdout", {"SHADOW_ASSESSING"}),
        ("window", {"SHADOW_ASSESSING"}),
        ("monitoring", {"HOLDOUT_CONFIRMED", "PROMOTION_RECOMMENDED", "MONITORING"}),
        ("comparison", set()),
    ],
)
def test_a_plan_is_issued_only_in_the_states_of_its_purpose(purpose: str, states: set[str]) -> None:
    for state in get_args(ControllerState):
        rule = plan_refusal(c.reached(state), purpose)  # type: ignore[arg-type]  # a purpose as text
        assert (rule is None) == (state in states)


def chain_of(*facts: ControllerFact) -> Chain:
    chain = Chain((c.genesis(),), ())
    for fact in facts:
        chain = chain.extended(extend(chain.current, fact, c.AT).event)
    return chain


def test_a_replay_of_the_events_alone_gives_the_same_snapshots() -> None:
    chain = chain_of(*c.WALKS["ROLLBACK_RECOMMENDED"])
    read = [ControllerEvent.from_value(event.to_json()).record for event in chain.events]
    again = replay(c.genesis(), read)
    assert again == chain
    assert replay(c.genesis(), [event for event in read for _ in range(2)]) == chain, (
        "an exact duplicate changes nothing"
    )
    assert replay(c.genesis(), [*read, *read]) == chain


def test_a_fork_a_gap_and_a_foreign_event_are_refused() -> None:
    chain = chain_of(*c.WALKS["NOMINATED"])
    first, second, third, fourth = chain.events
    other = extend(chain.snapshots[1], c.STARTED.model_copy(update={"collection_id": "another"}), c.AT).event
    with pytest.raises(InputError, match="the log forks"):
        replay(c.genesis(), [first, second, other])
    with pytest.raises(InputError, match="does not take development-evidence-ready"):
        replay(c.genesis(), [first, third])
    with pytest.raises(InputError, match="extends exactly the event before it"):
        replay(c.genesis(controller_id="another"), [first])
    with pytest.raises(InputError, match="the validity that is registered"):
        replay(c.genesis(expires_at="2026-09-02T00:00:00.000Z"), [first])
    with pytest.raises(InputError, match="starts as an empty DRAFT"):
        replay(chain.current, [])
    assert fourth.sequence == 4


def test_an_anchor_pins_the_history_and_its_end() -> None:
    chain = chain_of(*c.WALKS["MONITORING"])
    for snapshot in chain.snapshots:
        check_anchor(chain, snapshot.anchor)
    shorter = replay(c.genesis(), chain.events[:-1])
    with pytest.raises(DigestMismatch, match="the log ends at event 8, the anchor is at 9"):
        check_anchor(shorter, chain.current.anchor)
    forged = chain.current.anchor.model_copy(update={"snapshot_digest": c.d(99)})
    with pytest.raises(DigestMismatch, match="event and snapshot"):
        check_anchor(chain, forged)
    with pytest.raises(DigestMismatch, match="another controller"):
        check_anchor(chain, forged.model_copy(update={"controller_id": "another"}))
