"""The steps of a decision study's life, as its commands take them, without tables and pictures."""

from __future__ import annotations

from datetime import datetime, timedelta

from tasc_collector.contracts.scalars import parse_timestamp
from tasc_pipeline.home.windows import REPORT, WindowFolder
from tasc_pipeline.steps import close, collect, controller, publish, seal
from tasc_pipeline.steps.approved import key_ring, load_approved
from tasc_pipeline.steps.assess_decision import assess_decision_window
from tasc_pipeline.steps.controller import Wanted
from tests.support.decision_world import STUDY, DecisionWorld
from tests.support.window import now

LATER = timedelta(days=1)
"""After every watermark."""


def advance(made: DecisionWorld, at: datetime | None = None, **wanted: object) -> str:
    """Record the next fact; returns the controller's state."""
    return controller.advance(made.home, STUDY, at or now() + LATER, Wanted(**wanted)).chain.current.state  # type: ignore[arg-type]  # fields of Wanted


def collected(made: DecisionWorld, key: str) -> str:
    """Collect, publish and close an approved window."""
    assert collect.collect(made.home, key, show=lambda _: None).status == "complete"
    publish.publish(made.home, key)
    close.close(made.home, key)
    return key


def assessed(made: DecisionWorld, key: str) -> str:
    """Assess a window as `tasc assess` does; returns the decision's status."""
    report = assess_decision_window(
        made.home, load_approved(made.home, key), close.close(made.home, key), None, now() + LATER
    )
    WindowFolder(made.home, key).write(REPORT, report)
    assert report.decision is not None
    return report.decision.status


def revised(made: DecisionWorld, key: str) -> str:
    """The window's next revision, with the evidence that came after it was closed."""
    declaration = WindowFolder(made.home, key).declaration(key_ring(made.home)).record
    over = parse_timestamp(declaration.ingestion_watermark) + timedelta(minutes=1)
    return collected(made, seal.revise(made.home, key, over).window_key)
