"""From one request to one wire: everything a contract server decides, without a socket.

Order of one request
1. The route is found; an unknown one gets the runtime's own answer to that.
2. The fault is chosen (scope, call number, share).
3. The request is entered in the ledger. Only then is anything answered.
4. Inference: body, checks, ask, generation, frames or JSON. Observation: the route's reply. The fault edits its step.
5. The plan becomes a wire.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import orjson

from tasc_collector.canonical import JsonValue
from tasc_collector.contract_servers.asking import read_ask
from tasc_collector.contract_servers.behaviour import Behaviour, FaultScope
from tasc_collector.contract_servers.contract import (
    AnswerForm,
    CheckInput,
    Contract,
    InferenceRoute,
    ObservationRoute,
    Observed,
    Refusal,
    Reply,
)
from tasc_collector.contract_servers.counters import Counters
from tasc_collector.contract_servers.faults import find_fault
from tasc_collector.contract_servers.faults.model import Fault, Instead, Moment, StreamEdit
from tasc_collector.contract_servers.frames import Frame, encode, write_ndjson, write_sse
from tasc_collector.contract_servers.generation import (
    Ask,
    Generation,
    UsageFigures,
    case_digest,
    count_input_tokens,
    spread_unit,
    words,
)
from tasc_collector.contract_servers.http import Request, RequestHead
from tasc_collector.contract_servers.ledger import Entry, EntryKind, Ledger
from tasc_collector.contract_servers.plan import Coding, End, Headers, Piece, Plan, Wire, schedule, to_wire


@dataclass(frozen=True, slots=True)
class Answered:
    """What the connection plays, and the generation behind it (None where nothing is generated)."""

    wire: Wire
    generation: Generation | None = None


_STRUCTURED = ('{"prime"', ": ", "2", "}")
"""The structured answer, one token per part; it fits the schema that the probes ask for."""


def make_generation(
    contract: Contract, route: InferenceRoute, ask: Ask, digest: str, behaviour: Behaviour, *, moulded: bool = False
) -> Generation:
    """The answer to a request: text, lengths, counts and times, all from the request and the behaviour."""
    extra = int(digest[8:16], 16) % (behaviour.tokens_spread + 1)
    wanted = behaviour.tokens + extra
    thinking = behaviour.reasoning_tokens
    total = wanted + thinking
    truncated = ask.cap is not None and total >= ask.cap
    if truncated and ask.cap is not None:
        total = ask.cap
    thinking = min(thinking, total)
    spoken = words(digest, ask.seed, total)
    if ask.structured and not truncated:
        spoken = _STRUCTURED
        total, thinking = len(spoken), 0
    size = behaviour.tokens_per_event
    answer = spoken[thinking:]
    groups = [answer[at : at + size] for at in range(0, len(answer), size)]
    pieces = ["".join(group) for group in groups]
    if behaviour.answer_prefix and pieces:
        pieces[0] = behaviour.answer_prefix + pieces[0]
    factor = 1 + behaviour.timing_spread * spread_unit(digest, "timing")
    prompt_tokens = count_input_tokens(ask.prompt)
    output = total * (ask.choices if contract.usage_sums_choices else 1)
    optional = {} if behaviour.cached_tokens is None else {"cached": min(behaviour.cached_tokens, prompt_tokens)}
    return Generation(
        ask=ask,
        digest=digest,
        pieces=tuple(pieces),
        piece_tokens=tuple(len(group) for group in groups),
        finish=route.dialect.finish_words["length" if truncated else "tool_calls" if ask.tools else "stop"],
        tool_call=ask.tools,
        words=route.dialect.finish_words,
        moulded=moulded,
        truncated=truncated,
        usage=UsageFigures(prompt_tokens, output, prompt_tokens + output, **optional),
        model=contract.model_of(ask, behaviour.model or contract.model),
        reasoning=spoken[:thinking],
        ttft_ms=behaviour.ttft_ms * factor,
        itl_ms=behaviour.itl_ms * factor,
    )


def break_index(frames: list[Frame], fault_at: int | None) -> int:
    """Index of the first frame that a broken stream leaves out: after ``fault_at`` token events, or half of them."""
    carrying = [index for index, frame in enumerate(frames) if frame.tokens]
    passed = len(carrying) // 2 if fault_at is None else min(fault_at, len(carrying))
    if not carrying:
        return len(frames) // 2
    return carrying[passed] if passed < len(carrying) else carrying[-1] + 1


def _stamp_sse(data: bytes, now_ns: int) -> bytes:
    return b": sent_ns %d\n%b" % (now_ns, data)


def _stamp_ndjson(data: bytes, now_ns: int) -> bytes:
    return b'{"sent_ns":%d,%b' % (now_ns, data[1:]) if data.startswith(b"{") else data


class Responder:
    """Answers requests for one contract; called from one event loop only.

    Args:
        contract: the runtime's tables.
        behaviour: timing, lengths, faults; may be exchanged between requests.
        ledger: where every request is entered.
    """

    def __init__(self, contract: Contract, behaviour: Behaviour, ledger: Ledger) -> None:
        self.contract = contract
        self.ledger = ledger
        self.counters = Counters()
        self._numbers = dict.fromkeys(FaultScope, 0)
        self._behaviour = behaviour
        self._fault = find_fault(behaviour.fault)

    @property
    def behaviour(self) -> Behaviour:
        """The behaviour of the next request."""
        return self._behaviour

    @behaviour.setter
    def behaviour(self, behaviour: Behaviour) -> None:
        self._fault = find_fault(behaviour.fault)
        self._behaviour = behaviour

    def early_fault(self, moment: Moment, number: int) -> Fault | None:
        """The fault that hits a connection (ACCEPT) or a request's head (HEAD), by its number."""
        fault = self._fault
        return (
            fault
            if fault is not None and fault.moment is moment and self._behaviour.hits(number, str(number))
            else None
        )

    def number_call(self, head: RequestHead) -> int:
        """The 1-based number of a call within its scope, given when its head is here."""
        inference = head.method == "POST" and head.path in self.contract.inference
        scope = FaultScope.INFERENCE if inference else FaultScope.OBSERVATION
        self._numbers[scope] += 1
        self._numbers[FaultScope.ALL] += 1
        chosen = self._scope()
        return self._numbers[chosen] if chosen in {scope, FaultScope.ALL} else 0

    def _scope(self) -> FaultScope:
        return self._behaviour.fault_scope or (self._fault.scope if self._fault else FaultScope.INFERENCE)

    def _choose(self, scope: FaultScope, number: int, key: str) -> Fault | None:
        if (
            self._fault is None
            or self._fault.moment is not Moment.ANSWER
            or self._scope() not in {scope, FaultScope.ALL}
        ):
            return None
        return self._fault if self._behaviour.hits(number, key) else None

    # --- one request ---------------------------------------------------------------------------------------------

    def answer(self, request: Request, number: int, connection: int) -> Answered:
        """The wire for a request that has been read whole.

        Args:
            request: the request.
            number: what ``number_call`` gave for its head.
            connection: number of the connection.
        """
        self.counters.reads += 1
        head = request.head
        known = not (self.contract.exact_query and head.query)
        route = self.contract.inference.get(head.path) if known and head.method == "POST" else None
        if route is not None:
            return self._inference(route, request, number, connection)
        observation = self._find_observation(head) if known else None
        fault = self._choose(FaultScope.OBSERVATION, number, f"{head.path}:{number}")
        self._enter(request, connection, fault, observation=observation)
        if observation is None:
            return Answered(self._plain(self.contract.unknown_route(request), request, fault))
        return Answered(self._plain(self._observe(observation, request, fault), request, fault))

    def _find_observation(self, head: RequestHead) -> ObservationRoute | None:
        found = self.contract.observations.get(f"{head.method} {head.path}")
        if found is None and head.method == "GET":
            prefix = next((path for path in self.contract.prefix_paths if head.path.startswith(path)), None)
            found = self.contract.observations.get(f"GET {prefix}")
        return found

    def _observe(self, route: ObservationRoute, request: Request, fault: Fault | None) -> Reply:
        if fault is not None and fault.reply is not None:
            return fault.reply(Instead(request, self.contract, self._behaviour))
        if route.generates:
            self.counters.begin(1)
            self.counters.end(1, "length", 0.0, 0.0)
        reply = route.reply(Observed(self._behaviour.model or self.contract.model, self.counters, request))
        return fault.observed(route.role, reply) if fault is not None and fault.observed is not None else reply

    def _enter(
        self,
        request: Request,
        connection: int,
        fault: Fault | None,
        *,
        digest: str = "",
        stream: bool = False,
        observation: ObservationRoute | None = None,
    ) -> None:
        head = request.head
        entry = Entry(
            EntryKind.REQUEST,
            connection,
            head.method,
            head.path,
            inference=observation.generates if observation is not None else head.path in self.contract.inference,
            mutating=observation is not None and observation.mutating,
            digest=digest,
            stream=stream,
            body_bytes=len(request.body),
            fault=fault.name if fault is not None else "",
            headers=tuple(head.headers),
        )
        self.ledger.enter(entry)

    def _inference(self, route: InferenceRoute, request: Request, number: int, connection: int) -> Answered:
        body = _parse(request.body)
        prompt = body.get(route.fields.prompt) if body is not None else None
        digest = case_digest(prompt) if prompt is not None else ""
        occurrence = self.ledger.by_request.get(digest, 0)
        fault = self._choose(FaultScope.INFERENCE, number, f"{digest}:{occurrence}")
        ask = read_ask(body or {}, route.fields)
        self._enter(request, connection, fault, digest=digest, stream=ask.stream)
        if fault is not None and fault.reply is not None:
            return Answered(self._plain(fault.reply(Instead(request, self.contract, self._behaviour)), request, fault))
        if body is None:
            return Answered(self._plain(self.contract.malformed(request), request, fault))
        refused = self._refused(
            route, CheckInput(request, body, route.fields, self._behaviour.model or self.contract.model)
        )
        if refused is not None and not route.fields.forced_stream:
            return Answered(self._plain(refused, request, fault))
        if fault is not None and fault.ask is not None:
            ask = fault.ask(ask)
        generation = make_generation(
            self.contract, route, ask, digest or case_digest(None), self._behaviour, moulded=fault is None
        )
        if fault is not None and fault.shape is not None and self._form(route, ask) in fault.forms:
            generation = fault.shape(generation)
        self.counters.begin(count_input_tokens(ask.prompt))
        if refused is not None:
            plan = self._stream_plan(route, [route.dialect.error_frame(generation, 0)], generation)
        elif ask.stream:
            frames = route.dialect.frames(generation)
            at = break_index(frames, self._behaviour.fault_at)
            if fault is not None and fault.frames is not None and route.dialect.form in fault.forms:
                frames = fault.frames(StreamEdit(frames, generation, route.dialect, at))
            plan = replace(self._stream_plan(route, frames, generation), break_at=min(at, len(frames)))
        else:
            plan = self._json_plan(route, generation, fault)
        return Answered(self._finish(plan, request, fault, self._form(route, ask)), generation)

    def _refused(self, route: InferenceRoute, given: CheckInput) -> Reply | None:
        for check in route.checks:
            found = check(given)
            if isinstance(found, Refusal):
                return Reply(found.status, self._encode(self.contract.error(found)), self.contract.http.json_media)
            if found is not None:
                return found
        return None

    # --- plans ---------------------------------------------------------------------------------------------------

    def _form(self, route: InferenceRoute, ask: Ask) -> AnswerForm:
        return route.dialect.form if ask.stream else AnswerForm.JSON

    def _encode(self, value: JsonValue) -> bytes:
        return encode(value, spaced=self.contract.http.spaced_json)

    def _headers(self, media: str | None, more: Headers = ()) -> Headers:
        style = self.contract.http
        typed = ((style.type_name, media),) if media is not None else ()
        return (*style.headers, *typed, *more)

    def _stream_plan(self, route: InferenceRoute, frames: list[Frame], generation: Generation) -> Plan:
        style, behaviour = self.contract.http, self._behaviour
        lines = route.dialect.form is AnswerForm.NDJSON
        write = write_ndjson if lines else write_sse
        dues = schedule(frames, generation.ttft_ms, generation.itl_ms, behaviour.role_ms)
        spaced = style.spaced_json
        stamp = _stamp_ndjson if lines else _stamp_sse
        return Plan(
            status=200,
            headers=self._headers("application/x-ndjson" if lines else style.stream_media, style.stream_headers),
            pieces=tuple(Piece(due, write(frame, spaced=spaced)) for due, frame in zip(dues, frames, strict=True)),
            coding=Coding.CLOSE if style.version == "1.0" else Coding.CHUNKED,
            version=style.version,
            head_due_s=dues[0] if style.late_head and dues else 0.0,
            keep_alive=style.keep_alive,
            stamp=stamp if behaviour.stamp else None,
            per_write=behaviour.events_per_write,
        )

    def _json_plan(self, route: InferenceRoute, generation: Generation, fault: Fault | None) -> Plan:
        body = route.dialect.json_body(generation)
        if fault is not None and fault.body is not None and AnswerForm.JSON in fault.forms:
            body = fault.body(body)
        style = self.contract.http
        due_s = (generation.ttft_ms + generation.decode_ms) / 1000
        return Plan(
            status=200,
            headers=self._headers(style.json_media, route.dialect.json_headers(generation)),
            pieces=(Piece(due_s, self._encode(body)),),
            coding=Coding.LENGTH,
            version=style.version,
            keep_alive=style.keep_alive,
        )

    def _plain(self, reply: Reply, request: Request, fault: Fault | None) -> Wire:
        if reply.silent:
            return Wire((), End.FIN, keep_alive=False)
        style = self.contract.http
        plan = Plan(
            status=reply.status,
            headers=self._headers(reply.media, reply.headers),
            pieces=(Piece(0.0, reply.body),) if reply.body else (),
            coding=Coding.LENGTH,
            version=style.version,
            keep_alive=style.keep_alive,
        )
        return self._finish(plan, request, fault, AnswerForm.JSON)

    def _finish(self, plan: Plan, request: Request, fault: Fault | None, form: AnswerForm) -> Wire:
        if request.head.wants_close:
            plan = replace(plan, keep_alive=False)
        if fault is not None and fault.plan is not None and form in fault.forms:
            plan = fault.plan(plan)
        wire = to_wire(plan)
        return fault.wire(wire) if fault is not None and fault.wire is not None and form in fault.forms else wire


def _parse(body: bytes) -> Mapping[str, JsonValue] | None:
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None
