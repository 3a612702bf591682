"""Building request bodies: per route, from the profile's table, never a superset body.

Rules:

1. A body holds what the route honours and nothing else: several servers refuse unknown fields, others ignore them
   silently (a cap that is ignored is an unbounded generation).
2. ``stream`` is always explicit: two servers stream by default.
3. What a route cannot do is refused, never dropped: a seed that is not sent would make two profiles incomparable.
4. Prompts go out as they are, white space at both ends included.
5. Bodies are canonical JSON (RFC 8785), so that the same generation has the same bytes.
6. No error message holds a prompt.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from tasc_collector.canonical import JsonValue, canonical_bytes
from tasc_collector.errors import InputError
from tasc_collector.limits import (
    REQUEST_MAX_MESSAGES,
    REQUEST_MAX_OUTPUT_TOKENS,
    REQUEST_MAX_PROMPT_CHARS,
    REQUEST_MAX_STOP_CHARS,
    REQUEST_MAX_STOPS,
)
from tasc_collector.runtimes.features import FEATURE_FIELDS, Feature
from tasc_collector.runtimes.profile import (
    Framing,
    GenerationField,
    InvocationRoute,
    Protocol,
    RequestShape,
    Route,
    RuntimeProfile,
)

Body: TypeAlias = dict[str, JsonValue]


class Role(StrEnum):
    """Who says a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a chat; its text is not shown in ``repr``."""

    role: Role
    content: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Generation:
    """One generation, in the project's own words. Exactly one of ``messages`` and ``prompt`` is given.

    Args:
        model_id: the model as the server names it.
        max_tokens: most output tokens.
        stream: whether the answer is to be streamed.
        messages: messages of a chat.
        prompt: text to be continued.
        temperature: 0 to 2.
        top_p: 0 to 1.
        seed: seed of the sampler.
        stop: texts that end the answer.
        feature: what a canary asks for besides text; None in every study's call.

    Raises:
        InputError: a value is out of its bounds; names the field.
    """

    model_id: str
    max_tokens: int
    stream: bool
    messages: tuple[Message, ...] | None = field(default=None, repr=False)
    prompt: str | None = field(default=None, repr=False)
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = field(default=(), repr=False)
    feature: Feature | None = None

    def __post_init__(self) -> None:
        if (self.messages is None) is (self.prompt is None):
            raise _refused("messages", "give messages or a prompt, one of them")
        texts = [self.prompt] if self.messages is None else [message.content for message in self.messages]
        if self.messages is not None and not 1 <= len(self.messages) <= REQUEST_MAX_MESSAGES:
            raise _refused("messages", f"give 1 to {REQUEST_MAX_MESSAGES} messages")
        if not all(texts) or sum(len(text or "") for text in texts) > REQUEST_MAX_PROMPT_CHARS:
            raise _refused("prompt", f"give 1 to {REQUEST_MAX_PROMPT_CHARS} characters of text, none of it empty")
        if not self.model_id:
            raise _refused("model_id", "name the model as the server does")
        if not 1 <= self.max_tokens <= REQUEST_MAX_OUTPUT_TOKENS:
            raise _refused("max_tokens", f"choose from 1 to {REQUEST_MAX_OUTPUT_TOKENS}")
        _within("temperature", self.temperature, 2.0)
        _within("top_p", self.top_p, 1.0)
        if len(self.stop) > REQUEST_MAX_STOPS or not all(0 < len(text) <= REQUEST_MAX_STOP_CHARS for text in self.stop):
            raise _refused(
                "stop", f"give at most {REQUEST_MAX_STOPS} texts of 1 to {REQUEST_MAX_STOP_CHARS} characters"
            )
        if len(set(self.stop)) != len(self.stop):
            raise _refused("stop", "give each text once")


@dataclass(frozen=True, slots=True)
class BuiltRequest:
    """A request, ready to be sent. Its body is not shown in ``repr``.

    Args:
        method: HTTP method.
        path: exact path without a query.
        framing: framing of the answer.
        accept: value of ``Accept``.
        body: canonical JSON.
    """

    method: str
    path: str
    framing: Framing
    accept: str
    body: bytes = field(repr=False)

    @property
    def content_type(self) -> str:
        """Value of ``Content-Type``: always ``application/json``."""
        return "application/json"


def framing_for(invocation: InvocationRoute, *, stream: bool) -> Framing:
    """The framing of a route's answer, streamed or not.

    Raises:
        InputError: the route does not stream.
    """
    if not stream:
        return Framing.JSON
    for framing in invocation.framings:
        if framing is not Framing.JSON:
            return framing
    raise InputError("the route does not stream", field="stream", way_out="ask for the whole answer: stream = false")


def build_request(profile: RuntimeProfile, route: Route, generation: Generation) -> BuiltRequest:
    """Build the request of one generation.

    Args:
        profile: the endpoint's profile.
        route: the route to call.
        generation: what to generate.

    Returns:
        Method, exact path, ``Accept`` and body.

    Raises:
        InputError: the build has no such route, or the route cannot do what is asked.
    """
    invocation = profile.routes.get(route)
    if invocation is None:
        raise InputError(
            f"{profile.display_name} {profile.build} has no route {route}",
            field="route",
            way_out="choose one of " + ", ".join(profile.routes),
        )
    if profile.passes_on(generation.model_id):
        raise InputError(
            "the model id is one that the runtime passes on to a remote host",
            field="model_id",
            rule=f"{profile.display_name} endpoints are {profile.locality}",
            way_out="name a model that is installed locally",
        )
    _check_route(invocation, generation)
    framing = framing_for(invocation, stream=generation.stream)
    body = _BUILDERS[invocation.protocol](invocation.request, generation)
    body.update(invocation.request.fixed)
    if generation.stream:
        body.update(invocation.request.stream_fixed)
    if generation.feature is not None:
        _ask_for(body, invocation, generation.feature)
    return BuiltRequest(
        invocation.method, invocation.paths[framing], framing, framing.media_type, canonical_bytes(body)
    )


def _ask_for(body: Body, invocation: InvocationRoute, feature: Feature) -> None:
    """Add the fields of a feature, each at its place."""
    fields = FEATURE_FIELDS.get((invocation.protocol, feature))
    if fields is None:
        having = [protocol.value for protocol, item in FEATURE_FIELDS if item is feature]
        raise InputError(
            f"{invocation.route} has no request for {feature}",
            field="route",
            rule="known for " + ", ".join(having),
            way_out="probe it on another route: --route",
        )
    for path, value in fields.items():
        *outer, name = path.split(".")
        holder: Body = body
        for part in outer:
            inner = holder.setdefault(part, {})
            if not isinstance(inner, dict):
                raise InputError("the body has something else here", field=path, way_out="report this as a defect")
            holder = inner
        holder[name] = value


def _check_route(invocation: InvocationRoute, generation: Generation) -> None:
    wants_messages = invocation.protocol in _CHAT
    if wants_messages is (generation.messages is None):
        needed = "messages" if wants_messages else "a prompt"
        raise _refused(
            "messages" if wants_messages else "prompt", f"give {needed}: {invocation.route} takes nothing else"
        )
    asked = {
        GenerationField.TEMPERATURE: generation.temperature is not None,
        GenerationField.TOP_P: generation.top_p is not None,
        GenerationField.SEED: generation.seed is not None,
        GenerationField.STOP: bool(generation.stop),
        GenerationField.STREAM: generation.stream,
    }
    for name in GenerationField:
        if asked[name] and name in invocation.request.forbids:
            raise InputError(
                f"{invocation.route} of this build has no {name}",
                field=name,
                way_out=f"leave {name} out for every profile of the study, or choose another route",
            )
    if generation.temperature is not None and generation.temperature > invocation.request.max_temperature:
        raise _refused("temperature", f"choose at most {invocation.request.max_temperature:g} for {invocation.route}")


def _openai(shape: RequestShape, generation: Generation, content: Body) -> Body:
    return {
        "model": generation.model_id,
        "stream": generation.stream,
        shape.cap_field: generation.max_tokens,
        **content,
        **_sampling(generation),
    }


def _sampling(generation: Generation) -> Body:
    """Optional fields under their usual names."""
    body: Body = {}
    if generation.temperature is not None:
        body["temperature"] = generation.temperature
    if generation.top_p is not None:
        body["top_p"] = generation.top_p
    if generation.seed is not None:
        body["seed"] = generation.seed
    if generation.stop:
        body["stop"] = list(generation.stop)
    return body


def _messages(generation: Generation) -> list[JsonValue]:
    return [{"role": message.role.value, "content": message.content} for message in generation.messages or ()]


def _chat(shape: RequestShape, generation: Generation) -> Body:
    return _openai(shape, generation, {"messages": _messages(generation)})


def _completions(shape: RequestShape, generation: Generation) -> Body:
    return _openai(shape, generation, {"prompt": generation.prompt})


def _responses(shape: RequestShape, generation: Generation) -> Body:
    return _openai(shape, generation, {"input": generation.prompt})


def _ollama(shape: RequestShape, generation: Generation, content: Body) -> Body:
    options = {shape.cap_field: generation.max_tokens, **_sampling(generation)}
    return {"model": generation.model_id, "stream": generation.stream, "options": options, **content}


def _ollama_chat(shape: RequestShape, generation: Generation) -> Body:
    return _ollama(shape, generation, {"messages": _messages(generation)})


def _ollama_generate(shape: RequestShape, generation: Generation) -> Body:
    return _ollama(shape, generation, {"prompt": generation.prompt})


def _tgi_generate(shape: RequestShape, generation: Generation) -> Body:
    """TGI samples only if told so, and takes no temperature of zero (v3.3.7 ``router/src/validation.rs``)."""
    parameters = _sampling(generation)
    sampled = bool(parameters.get("temperature"))
    if not sampled:
        parameters.pop("temperature", None)
    parameters.update(
        {
            shape.cap_field: generation.max_tokens,
            "details": True,
            "do_sample": sampled,
            "return_full_text": False,
        }
    )
    return {"inputs": generation.prompt, "parameters": parameters}


def _lm_studio_chat(shape: RequestShape, generation: Generation) -> Body:
    """LM Studio takes a system prompt and user input. Its documents disagree about items: one message is a text."""
    messages = list(generation.messages or ())
    system = messages.pop(0).content if messages and messages[0].role is Role.SYSTEM else None
    if not messages or any(message.role is not Role.USER for message in messages):
        raise _refused("messages", "give at most one leading system message, then user messages only")
    several: JsonValue = [{"type": "message", "content": message.content} for message in messages]
    return {
        "model": generation.model_id,
        "stream": generation.stream,
        shape.cap_field: generation.max_tokens,
        "input": messages[0].content if len(messages) == 1 else several,
        **({} if system is None else {"system_prompt": system}),
        **_sampling(generation),
    }


_BUILDERS: Mapping[Protocol, Callable[[RequestShape, Generation], Body]] = {
    Protocol.OPENAI_CHAT: _chat,
    Protocol.OPENAI_COMPLETIONS: _completions,
    Protocol.OPENAI_RESPONSES: _responses,
    Protocol.OLLAMA_CHAT: _ollama_chat,
    Protocol.OLLAMA_GENERATE: _ollama_generate,
    Protocol.TGI_GENERATE: _tgi_generate,
    Protocol.LM_STUDIO_CHAT: _lm_studio_chat,
}
_CHAT = frozenset({Protocol.OPENAI_CHAT, Protocol.OLLAMA_CHAT, Protocol.LM_STUDIO_CHAT})
"""Protocols that take messages; the others take a prompt."""


def _within(name: str, value: float | None, greatest: float) -> None:
    if value is not None and not (math.isfinite(value) and 0 <= value <= greatest):
        raise _refused(name, f"choose from 0 to {greatest:g}")


def _refused(name: str, way_out: str) -> InputError:
    return InputError("the generation cannot be sent as it is", field=name, way_out=way_out)
