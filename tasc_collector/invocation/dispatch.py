"""Dispatching a prepared call: the authority is spent, the secret is read, the exchange is made, the outcome is
written down.

Rules:

1. The handle is spent first. Whatever comes after, this call is never made twice.
2. Time of an admission is checked again, then the secret is read; a failure of either is ``not_sent``.
3. The lease callback is awaited by the exchange, after TLS and before byte one; what it raises passes through.
4. The answer is read as it comes. Its text goes into its keyed identity and is not kept.
5. A cancellation stays a cancellation and carries the outcome with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from tasc_collector.contracts.identities import KeyedIdentity
from tasc_collector.contracts.persistence import RuntimeInvocationPersistence
from tasc_collector.errors import Category, DispatchState, SecretUnavailable
from tasc_collector.identity import PayloadKey
from tasc_collector.invocation.admission import require_live
from tasc_collector.invocation.persist import PayloadIdentities, failure_category, persistence_of
from tasc_collector.invocation.prepare import Authority, PreparedInvocation, spend
from tasc_collector.invocation.timeline import CallTimeline, timeline_of
from tasc_collector.runtimes.answer import AnswerReader
from tasc_collector.runtimes.result import Answer, Arrival
from tasc_collector.transport.codes import Code, category_of
from tasc_collector.transport.exchange import Lease, exchange
from tasc_collector.transport.network import NetworkAccess, SystemNetwork
from tasc_collector.transport.result import ExchangeCancelled, ExchangeRequest, ExchangeResult
from tasc_collector.transport.trust import trust_of

PEER_DOMAIN = "tasc/peer-address/v1"
_MS = 1_000_000
_SYSTEM = SystemNetwork()
_GATHER_BYTES = 16_384


@dataclass(frozen=True, slots=True)
class InvocationOutcome:
    """What one dispatched call came to.

    Args:
        persistence: what may be kept of it.
        timeline: when everything happened.
        exchange: how far it got.
        answer: what was read of a 200 answer; None where none came.
        category: persisted failure category; None where it completed.
        answer_identity: keyed identity of the answer's text, where it completed.
    """

    persistence: RuntimeInvocationPersistence
    timeline: CallTimeline
    exchange: ExchangeResult
    answer: Answer | None
    category: Category | None
    answer_identity: KeyedIdentity | None

    @property
    def state(self) -> DispatchState:
        """How far the call came."""
        return self.exchange.state

    @property
    def completed(self) -> bool:
        """True where the call is a success."""
        return self.category is None


class InvocationCancelled(asyncio.CancelledError):
    """The caller cancelled a call. It stays a cancellation; ``outcome`` says how far the call had come."""

    def __init__(self, outcome: InvocationOutcome) -> None:
        super().__init__("cancelled")
        self.outcome = outcome


async def dispatch(
    prepared: PreparedInvocation,
    *,
    lease: Lease,
    queued_ns: int | None = None,
    network: NetworkAccess = _SYSTEM,
    keep_text: bool = False,
    on_read: Callable[[int], None] | None = None,
) -> InvocationOutcome:
    """Spend a prepared call.

    Args:
        prepared: handle of ``prepare``; it is spent even where this raises.
        lease: awaited after TLS and before the first byte.
        queued_ns: when the caller began to wait for this call's turn; now, where it did not.
        network: lookups and sockets.
        keep_text: keep the answer's text in ``answer.text``, for a check that it is nowhere else.
        on_read: called after each read of a 200 answer's body with the number of events that carried output so far, so
            that a canary can leave in its midst.

    Raises:
        NotAuthorized: the handle has no authority, or the admission ends too soon. Nothing was sent.
        InputError: a file of the network extension is not what was pinned. Nothing was sent.
        InvocationCancelled: the caller cancelled; ``outcome`` says how far the call had come.
    """
    authority = spend(prepared)
    clock, target = authority.clock, authority.target
    require_live(
        target.admission, until_ms=clock.wall_ns() // _MS + prepared.deadline_ms, alias=target.alias, route=target.route
    )
    queued_ns = clock.now_ns() if queued_ns is None else queued_ns
    result = ExchangeResult()
    intake = _Intake(authority, result, keep_text=keep_text, on_read=on_read)
    try:
        secret = _secret(authority)
    except SecretUnavailable:
        now_ns = clock.now_ns()
        result.marks.queued, result.marks.begun, result.marks.ended = queued_ns, now_ns, now_ns
        result.code = Code.AUTHENTICATION_UNAVAILABLE
        result.category = category_of(result.code, None)
        return _outcome(prepared, authority, intake)
    request = ExchangeRequest(
        authorized=authority.authorized,
        headers=(("accept", authority.built.accept), ("content-type", "application/json")),
        body=authority.built.body,
        limits=target.limits,
        deadline_ns=clock.now_ns() + prepared.deadline_ms * _MS,
        content_types=frozenset({prepared.framing.media_type}),
        close_delimited=target.profile.routes[target.route].flags.close_delimited,
        secret=secret,
        tls=trust_of(authority.authorized, key_folder=authority.secrets.key_folder),
    )
    try:
        await exchange(
            request,
            lease=lease,
            on_data=intake.data,
            clock=clock,
            network=network,
            queued_ns=queued_ns,
            result=result,
            origin_ns=queued_ns,
        )
    except ExchangeCancelled:
        raise InvocationCancelled(_outcome(prepared, authority, intake)) from None
    return _outcome(prepared, authority, intake)


class _Hashed:
    """A keyed identity that takes many small pieces: they are gathered, because every update of a MAC costs as much
    as 4 KiB.
    """

    __slots__ = ("_identity", "_parts", "_size")

    def __init__(self, key: PayloadKey) -> None:
        self._identity = key.start()
        self._parts: list[bytes] = []
        self._size = 0

    def take(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)
        if self._size > _GATHER_BYTES:
            self._flush()

    def finish(self) -> KeyedIdentity:
        self._flush()
        return self._identity.finish()

    def _flush(self) -> None:
        self._identity.update(b"".join(self._parts))
        self._parts.clear()
        self._size = 0


class _Intake:
    """Takes the body of a 200 answer: into the reader, and into the keyed identities."""

    __slots__ = ("_authority", "_body", "_keep_text", "_on_read", "_reader", "_text", "result")

    def __init__(
        self, authority: Authority, result: ExchangeResult, *, keep_text: bool, on_read: Callable[[int], None] | None
    ) -> None:
        self._authority, self.result, self._keep_text, self._on_read = authority, result, keep_text, on_read
        self._reader: AnswerReader | None = None
        self._body, self._text = _Hashed(authority.payload_key), _Hashed(authority.payload_key)

    def data(self, body: bytes, arrival: Arrival) -> None:
        """Take one read's body bytes; the arrival counts from the queued moment."""
        reader = self._reader or self._open(arrival)
        self._body.take(body)
        reader.feed(body, arrival)
        if self._on_read is not None:
            self._on_read(reader.output_events)

    def _open(self, arrival: Arrival) -> AnswerReader:
        """Begin to read; no body byte can have come before the head's read, or else before the request."""
        target, marks = self._authority.target, self.result.marks
        origin_ns = marks.queued or 0
        head_ns = (marks.headers or 0) - origin_ns
        opened_ns = head_ns if 0 < head_ns < arrival.at_ns else (marks.request_started or 0) - origin_ns
        self._reader = AnswerReader(
            target.profile,
            target.route,
            target.framing,
            target.instance.model.id,
            max_tokens=self._authority.max_tokens,
            text_sink=self._text.take,
            keep_text=self._keep_text,
            opened_at_ns=max(opened_ns, 0),
        )
        return self._reader

    def finish(self) -> tuple[Answer | None, PayloadIdentities]:
        """The answer and the identities of what came."""
        result = self.result
        if self._reader is None and not (result.succeeded and result.marks.headers is not None):
            return None, PayloadIdentities(None, None)
        reader = self._reader or self._open(Arrival(0))
        answer = reader.finish(clean_end=result.clean_end)
        return answer, PayloadIdentities(self._body.finish(), self._text.finish())


def _outcome(prepared: PreparedInvocation, authority: Authority, intake: _Intake) -> InvocationOutcome:
    result = intake.result
    answer, identities = intake.finish()
    timeline = timeline_of(
        result,
        answer,
        framing=prepared.framing,
        peer=None if result.peer is None else _peer(result.peer, authority.payload_key),
    )
    persistence = persistence_of(prepared, result, answer, timeline, identities)
    return InvocationOutcome(
        persistence, timeline, result, answer, failure_category(result, answer), persistence.terminal_output_identity
    )


@lru_cache(maxsize=1_024)
def _peer(address: str, key: PayloadKey) -> str:
    """Keyed identity of the address that answered: tells replicas apart, and cannot be turned back without the key."""
    return "peer-" + key.identify_json(PEER_DOMAIN, address).value


def _secret(authority: Authority) -> tuple[str, bytes] | None:
    authentication = authority.target.authentication
    if authentication is None:
        return None
    value = authority.secrets.resolve(authentication.source).reveal()
    limit = authority.target.limits.max_secret_header_bytes
    if len(authentication.header) + len(value) > limit:
        raise SecretUnavailable("a secret is not usable", rule=f"header and value have at most {limit} bytes")
    return authentication.header, value
