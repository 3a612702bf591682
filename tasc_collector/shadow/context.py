"""Everything that is fixed for one run of one window, put together and cross-checked before any effect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tasc_collector.contracts.case_set import CaseSetFile
from tasc_collector.contracts.collection import CollectionPlan, PlanTarget
from tasc_collector.contracts.operations import CostModel
from tasc_collector.contracts.window import WindowDeclaration
from tasc_collector.invocation.prepare import CallTarget
from tasc_collector.journal import FileSystem, JournalBinding, OsFileSystem
from tasc_collector.limits import JOURNAL_GROW_BYTES, JOURNAL_SEGMENT_BYTES, STANDING_LOOK_EVERY_S
from tasc_collector.secrets import SecretStore
from tasc_collector.shadow.cases import Case
from tasc_collector.shadow.envelopes import EnvelopeTerms
from tasc_collector.shadow.standing import Look
from tasc_collector.transport.clock import Clock
from tasc_collector.transport.network import NetworkAccess, SystemNetwork


@dataclass(frozen=True, slots=True)
class RunContext:
    """What a run works with.

    Args:
        terms: plan, declaration and keys of the envelopes.
        case_set: the planned cases by keyed identity.
        cases: the cases at hand, all of the case set or a part of it.
        calls: how each profile is called, by profile id.
        cost_model: prices, if the study has them.
        folder: the journal's folder.
        journal_key: its HMAC key.
        secrets: where secret references are looked up, at dispatch.
        clock: both clocks.
        arrivals: offsets in seconds of a trace file, for an open load that follows one.
        fs: the file system below the journal.
        network: lookups and sockets.
        segment_bytes: size beyond which the journal begins its next segment.
        grow_bytes: step in which the journal reserves space.
        look: reads whether the window may still be sent; None where nothing can take that back.
        look_every_s: how old the last look may be when a lease is written.
    """

    terms: EnvelopeTerms
    case_set: CaseSetFile
    cases: tuple[Case, ...]
    calls: Mapping[str, CallTarget]
    cost_model: CostModel | None
    folder: Path
    journal_key: bytes = field(repr=False)
    secrets: SecretStore = field(repr=False)
    clock: Clock
    arrivals: tuple[float, ...] | None = None
    fs: FileSystem = field(default_factory=OsFileSystem, repr=False)
    network: NetworkAccess = field(default_factory=SystemNetwork, repr=False)
    segment_bytes: int = JOURNAL_SEGMENT_BYTES
    grow_bytes: int = JOURNAL_GROW_BYTES
    look: Look | None = None
    look_every_s: float = STANDING_LOOK_EVERY_S
    _dates: _Dates = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_dates", _Dates(self.clock))

    @property
    def plan(self) -> CollectionPlan:
        """The collection plan."""
        return self.terms.plan

    @property
    def declaration(self) -> WindowDeclaration:
        """The window's declaration."""
        return self.terms.declaration

    @property
    def binding(self) -> JournalBinding:
        """What the journal belongs to."""
        plan = self.plan
        return JournalBinding(
            plan.study_id, plan.protocol_digest, plan.digest, plan.window_key, 0, plan.declaration_digest
        )

    def target(self, profile_id: str) -> PlanTarget:
        """The plan's target of a profile."""
        return self.plan.target(profile_id)

    def wall_ms(self) -> int:
        """What a record of this run is dated with, in milliseconds since 1970.

        It is the wall clock as long as that goes forward. Where somebody sets it back, the run goes on at the pace of the
        monotonic clock: nothing is dated before what came earlier, before the window's start, or sent after its end.
        """
        return self._dates.now_ns() // 1_000_000


class _Dates:
    """A wall clock that is never set back.

    The wall clock is read before the monotonic one, so that a pause between the two readings does not carry it ahead.
    """

    __slots__ = ("_clock", "_monotonic_ns", "_wall_ns")

    def __init__(self, clock: Clock) -> None:
        self._clock, self._wall_ns, self._monotonic_ns = clock, clock.wall_ns(), clock.now_ns()

    def now_ns(self) -> int:
        """Nanoseconds since 1970."""
        wall_ns, monotonic_ns = self._clock.wall_ns(), self._clock.now_ns()
        self._wall_ns = max(wall_ns, self._wall_ns + monotonic_ns - self._monotonic_ns)
        self._monotonic_ns = monotonic_ns
        return self._wall_ns
