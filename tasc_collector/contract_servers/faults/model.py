"""What a fault is: at which moment it acts and which step of making an answer it changes.

An answer is made in steps, each of them a value; a fault replaces or edits exactly one or two of them:

    request -> ask -> generation (shape) -> frames | JSON body -> plan -> wire
                 \\-> reply (instead of all of it)

A fault that has no meaning for a form of answer leaves it as it is; ``forms`` says which forms it changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tasc_collector.canonical import JsonValue
from tasc_collector.contract_servers.behaviour import Behaviour, FaultScope
from tasc_collector.contract_servers.contract import AnswerForm, Contract, Dialect, Reply, Role
from tasc_collector.contract_servers.frames import Frame
from tasc_collector.contract_servers.generation import Ask, Generation
from tasc_collector.contract_servers.http import Request
from tasc_collector.contract_servers.plan import Plan, Wire

EVERY_FORM: Final = frozenset(AnswerForm)
STREAMS: Final = frozenset({AnswerForm.SSE, AnswerForm.NDJSON})
SSE: Final = frozenset({AnswerForm.SSE})
NDJSON: Final = frozenset({AnswerForm.NDJSON})
JSON: Final = frozenset({AnswerForm.JSON})


class Moment(StrEnum):
    """When a fault acts."""

    LISTEN = "listen"
    ACCEPT = "accept"
    HEAD = "head"
    ANSWER = "answer"


class Action(StrEnum):
    """What is done before an answer could be made."""

    REFUSE = "refuse"
    FILL_BACKLOG = "fill-backlog"
    RESET = "reset"
    CLOSE = "close"
    SILENT = "silent"
    STOP_READING = "stop-reading"
    REPLY_413 = "reply-413"


@dataclass(frozen=True, slots=True)
class StreamEdit:
    """A stream that a fault edits.

    Attributes:
        frames: the events as the dialect made them.
        generation: the answer behind them.
        dialect: makes error frames.
        break_at: index of the first frame that a broken stream no longer sends.
    """

    frames: list[Frame]
    generation: Generation
    dialect: Dialect
    break_at: int


@dataclass(frozen=True, slots=True)
class Instead:
    """What a fault knows when it answers with a reply instead of a generation."""

    request: Request
    contract: Contract
    behaviour: Behaviour


@dataclass(frozen=True, slots=True)
class Fault:
    """One named fault.

    Attributes:
        name: what callers write.
        rows: ids of the wire test list that it serves (T01 ... C04); empty for plain transport faults.
        summary: one line.
        forms: the forms of answer that it changes.
        scope: the calls it may hit, unless the behaviour says otherwise.
        moment: when it acts.
        action: what is done at an early moment.
        ask: edit of the request as read.
        shape: edit of the generation.
        frames: edit of a stream's events.
        body: edit of a JSON answer.
        reply: an answer instead of the generation.
        observed: edit of an observation's reply, by its role; ``reply``, ``plan`` and ``wire`` work there too.
        plan: edit of the HTTP response.
        wire: edit of the timed writes.
    """

    name: str
    rows: tuple[str, ...]
    summary: str
    forms: frozenset[AnswerForm] = EVERY_FORM
    scope: FaultScope = FaultScope.INFERENCE
    moment: Moment = Moment.ANSWER
    action: Action | None = None
    ask: Callable[[Ask], Ask] | None = None
    shape: Callable[[Generation], Generation] | None = None
    frames: Callable[[StreamEdit], list[Frame]] | None = None
    body: Callable[[JsonValue], JsonValue] | None = None
    reply: Callable[[Instead], Reply] | None = None
    observed: Callable[[Role, Reply], Reply] | None = None
    plan: Callable[[Plan], Plan] | None = None
    wire: Callable[[Wire], Wire] | None = None
