"""A controller from its events alone: no live object is asked again (section 3.14; the original cannot do this). Pure.

Rules:

1. Each event is derived again from the snapshot before it and must come out the same: so its fact was allowed, its
   predecessor is the event before it, and controller, study and protocol are those of the genesis.
2. The exact same event again changes nothing. Another event with a number that is taken is a fork and is refused.
3. An anchor pins a snapshot from outside: the chain must pass through exactly that event and that snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tasc_collector.contracts.controller import ControllerAnchor, ControllerEvent, ControllerSnapshot
from tasc_collector.errors import DigestMismatch, InputError
from tasc_pipeline.control.controller import extend

_RESTORE = "restore the controller's log from a copy; nothing was changed"


@dataclass(frozen=True, slots=True)
class Chain:
    """A controller's life so far.

    Args:
        snapshots: the genesis and the snapshot after each event.
        events: every event, in order.
    """

    snapshots: tuple[ControllerSnapshot, ...]
    events: tuple[ControllerEvent, ...]

    @property
    def current(self) -> ControllerSnapshot:
        """The newest snapshot."""
        return self.snapshots[-1]

    def event_of(self, fact_digest: str) -> ControllerEvent | None:
        """The newest event that recorded exactly this fact."""
        return next((event for event in reversed(self.events) if event.fact_digest == fact_digest), None)

    def extended(self, event: ControllerEvent) -> Chain:
        """The chain with one more event (rules 1 and 2).

        Raises:
            InputError: it does not extend this chain; names the rule.
        """
        number = event.sequence
        if number <= len(self.events):
            if self.events[number - 1].event_id == event.event_id:
                return self
            raise _refused(event, "a second event has the same number: the log forks")
        step = extend(self.current, event.fact, event.occurred_at)
        if step.event != event:
            raise _refused(event, "an event extends exactly the event before it, of the same controller and protocol")
        return Chain((*self.snapshots, step.snapshot), (*self.events, event))


def replay(genesis: ControllerSnapshot, events: Iterable[ControllerEvent]) -> Chain:
    """The chain that events make.

    Args:
        genesis: the empty DRAFT.
        events: in order; exact duplicates are skipped.

    Raises:
        InputError: the genesis is none, or an event does not extend the chain.
    """
    if genesis.state != "DRAFT":
        raise InputError(
            "a controller starts as an empty DRAFT", where=genesis.study_id, field="genesis", way_out=_RESTORE
        )
    chain = Chain((genesis,), ())
    for event in events:
        chain = chain.extended(event)
    return chain


def check_anchor(chain: Chain, anchor: ControllerAnchor) -> None:
    """Check that a chain passes through an anchor (rule 3).

    Raises:
        DigestMismatch: another controller, another history, or events are missing at the end.
    """
    current = chain.current
    if (anchor.controller_id, anchor.study_id, anchor.protocol_digest) != (
        current.controller_id,
        current.study_id,
        current.protocol_digest,
    ):
        raise _not_anchored(current, "controllerId", "the anchor is of another controller or protocol")
    if anchor.sequence > current.sequence:
        raise _not_anchored(
            current, "sequence", f"the log ends at event {current.sequence}, the anchor is at {anchor.sequence}"
        )
    if chain.snapshots[anchor.sequence].anchor != anchor:
        raise _not_anchored(current, "snapshotDigest", "event and snapshot at the anchor's number are the anchor's")


def _refused(event: ControllerEvent, rule: str) -> InputError:
    return InputError(
        "the controller's log does not add up",
        where=event.study_id,
        field=f"event {event.sequence}",
        rule=rule,
        way_out=_RESTORE,
    )


def _not_anchored(current: ControllerSnapshot, field: str, rule: str) -> DigestMismatch:
    return DigestMismatch(
        "the controller's log is not the one that was pinned",
        where=current.study_id,
        field=field,
        rule=rule,
        way_out=_RESTORE,
    )
