"""Each field of each of the original's records that the example study has no file of: removed, retyped, joined."""

from __future__ import annotations

from typing import Any

import pytest

from tasc_collector.contracts.controller import ControllerEvent, fact_digest
from tasc_collector.contracts.controller_facts import DeploymentObservation, DeploymentObserved
from tasc_collector.contracts.envelope import TraceEnvelope
from tasc_collector.contracts.policy import PolicyBundle
from tasc_collector.contracts.protocol import ExperimentProtocol
from tasc_collector.contracts.shadow_plan import ShadowRunPlan
from tests.support.mutations import check_every_field

Value = dict[str, Any]
D = "sha256:" + "1" * 64


def test_protocol(protocol_value: Value) -> None:
    check_every_field(ExperimentProtocol, protocol_value)


def test_trace(trace_value: Value) -> None:
    check_every_field(TraceEnvelope, trace_value)


def test_plan_and_policy(plan_value: Value) -> None:
    check_every_field(ShadowRunPlan, plan_value, untouched={"protocol", "controllerSnapshot", "frozenPolicy"})
    check_every_field(PolicyBundle, plan_value["frozenPolicy"])


def test_event() -> None:
    seen = DeploymentObservation(
        observation_id="seen", environment_id="production", policy_digest=D, observed_at="2026-07-24T00:00:00.000Z"
    )
    fact = DeploymentObserved(observation=seen)
    event = ControllerEvent.issue(
        controller_id="controller", study_id="study", protocol_digest=D, sequence=9, predecessor_event_id=D,
        occurred_at="2026-07-24T00:00:00.000Z", fact=fact, fact_digest=fact_digest(fact),
    )  # fmt: skip
    check_every_field(ControllerEvent, event.to_json())


@pytest.mark.parametrize("name", ["version", "dispatchIntent.version", "terminalOutputId.algorithm"])
def test_a_default_in_python_is_no_default_in_a_file(trace_value: Value, name: str) -> None:
    value: Any = trace_value
    *parents, last = name.split(".")
    for part in parents:
        value = value[part]
    del value[last]
    with pytest.raises(Exception, match="required field is missing"):
        TraceEnvelope.from_value(trace_value)
