"""What a server is asked for and what it will answer, before any dialect.

Rules
- Everything follows from the request and the behaviour: same request, same answer, on every machine and in every order.
- A case is known by ``case_digest``: SHA-256 over the canonical JSON of its prompt, messages or input. No text is kept.
- Shape faults edit a ``Generation`` (wrong counts, odd reasons, other model); dialects only render it.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from tasc_collector.canonical import JsonValue, canonical_bytes, sha256_hex
from tasc_collector.contract_servers.frames import ABSENT, Maybe

CREATED: Final = 1_790_000_000
"""The fixed second that stands in ``created`` fields; servers here read no wall clock."""

PROVIDER_TEXT: Final = "provider message that nobody may keep"
"""The text of every error message that a server here makes up, so that a test can look for it in stored files."""

_WORDS: Final = (
    " amber", " basil", " cedar", " delta", " ember", " fjord", " grove", " harbor", " iris", " juniper", " kelp",
    " lumen", " maple", " north", " orchid", " pebble", " quartz", " river", " sable", " tundra", " umber", " violet",
    " willow", " xenon", " yarrow", " zephyr", " Straße", " naïve", " 漢字", " пример", " 🙂", " \"quoted\"\n",
)  # fmt: skip
"""One word per token. The last ones are two to four bytes per character, or need escapes."""


class UsagePlace(StrEnum):
    """Where a stream of an OpenAI dialect carries usage."""

    NONE = "none"
    SEPARATE = "separate"
    FINISH = "finish"
    EVERY = "every"
    ZEROS_THEN_SEPARATE = "zeros-then-separate"
    NULL_THEN_SEPARATE = "null-then-separate"


class IdRule(StrEnum):
    """How the ``id`` of an answer behaves over its chunks."""

    CONSTANT = "constant"
    EMPTY = "empty"
    CHANGING = "changing"
    COLLIDING = "colliding"


@dataclass(frozen=True, slots=True)
class Ask:
    """One inference request as its route read it.

    Attributes:
        prompt: the prompt, messages or input, as sent.
        model: the model that was asked for, or None.
        stream: a stream was asked for, or the route streams by default.
        cap: the token cap that this route honours, or None.
        wants_usage: usage was asked for where a stream must ask.
        wants_details: the route's own switch for counts is on (TGI ``details``).
        bare_stream_options: ``stream_options`` without ``include_usage`` was sent.
        continuous_usage: ``continuous_usage_stats`` as sent, or None.
        logprobs: log-probabilities were asked for.
        choices: number of choices.
        seed: sampling seed, or None.
        store: the server was not told to keep nothing.
        structured: an answer by a JSON schema was asked for.
        tools: a tool was offered.
    """

    prompt: JsonValue
    model: str | None = None
    stream: bool = False
    cap: int | None = None
    wants_usage: bool = False
    wants_details: bool = False
    bare_stream_options: bool = False
    continuous_usage: bool | None = None
    logprobs: bool = False
    choices: int = 1
    seed: int | None = None
    store: bool = True
    structured: bool = False
    tools: bool = False


@dataclass(frozen=True, slots=True)
class UsageFigures:
    """The counts that an answer reports; any JSON value, so that a fault can report nonsense."""

    input: Maybe
    output: Maybe
    total: Maybe
    cached: Maybe = ABSENT
    reasoning: Maybe = ABSENT


@dataclass(frozen=True, slots=True)
class Generation:
    """One answer, ready for a dialect.

    Attributes:
        ask: the request.
        digest: case digest, bare hex.
        pieces: answer text per event; joined they are the whole answer.
        piece_tokens: tokens per event, aligned with ``pieces``.
        reasoning: reasoning text per event, before the answer.
        finish: the terminal reason exactly as it will be written; null or absent where a fault wants it.
        words: the dialect's words for stop, length and tool_calls.
        truncated: the cap ended the answer.
        usage: reported counts.
        usage_place: where a stream carries them; None leaves it to the dialect.
        extra_usage: a second usage frame with other counts, or None.
        model: the model identity that is written.
        id_rule: behaviour of ``id``; None leaves it to the dialect.
        created_step: seconds added to ``created`` per chunk.
        fingerprint: ``system_fingerprint`` override; absent leaves it to the dialect.
        unfinished: choice indexes that never get a reason.
        tool_call: the answer is one tool call instead of text.
        ttft_ms: planned time to first token.
        itl_ms: planned gap between events that carry tokens.
        moulded: no fault looks into the events, so chunks that differ in their text only may share a mould.
        extras: top-level fields that a fault adds to every chunk and to the JSON body.
    """

    ask: Ask
    digest: str
    pieces: tuple[str, ...]
    piece_tokens: tuple[int, ...]
    finish: Maybe
    words: Mapping[str, str]
    truncated: bool
    usage: UsageFigures
    model: Maybe
    reasoning: tuple[str, ...] = ()
    usage_place: UsagePlace | None = None
    extra_usage: UsageFigures | None = None
    id_rule: IdRule | None = None
    created_step: int = 0
    fingerprint: Maybe = ABSENT
    unfinished: frozenset[int] = frozenset()
    tool_call: bool = False
    ttft_ms: float = 0.0
    itl_ms: float = 0.0
    moulded: bool = False
    extras: Mapping[str, JsonValue] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The whole answer."""
        return "".join(self.pieces)

    @property
    def output_tokens(self) -> int:
        """Tokens really produced for one choice, reasoning included, whatever ``usage`` reports."""
        return sum(self.piece_tokens) + len(self.reasoning)

    @property
    def decode_ms(self) -> float:
        """Planned time from the first to the last token."""
        return self.itl_ms * max(0, len(self.pieces) + len(self.reasoning) - 1)

    def answer_id(self, prefix: str, index: int, usual: IdRule) -> str:
        """The ``id`` of chunk ``index`` under the generation's id rule, or the dialect's usual one."""
        match self.id_rule or usual:
            case IdRule.EMPTY:
                return ""
            case IdRule.CHANGING:
                return f"{prefix}{self.digest[:16]}{index:08x}"
            case IdRule.COLLIDING:
                return f"{prefix}{int(self.digest[:8], 16) % 999}"
            case _:
                return f"{prefix}{self.digest[:24]}"

    def created(self, index: int) -> int:
        """The ``created`` second of chunk ``index``."""
        return CREATED + self.created_step * index


def case_digest(prompt: JsonValue) -> str:
    """Bare hex SHA-256 over the canonical JSON of a prompt, messages or input: how ledgers name a case."""
    return sha256_hex(canonical_bytes(prompt))


def count_input_tokens(prompt: JsonValue) -> int:
    """The prompt's token count here: one token per four bytes of its canonical JSON, rounded up."""
    return -(-len(canonical_bytes(prompt)) // 4)


def words(digest: str, seed: int | None, count: int) -> tuple[str, ...]:
    """``count`` one-token words that depend on the case and the seed only."""
    material = hashlib.sha256(f"{digest}:{seed}".encode()).digest()
    size = len(_WORDS)
    return tuple(_WORDS[(material[i & 31] + (i >> 5)) % size] for i in range(count))


def spread_unit(digest: str, purpose: str) -> float:
    """A number in [-1, 1) that depends on the case and the purpose only."""
    return random.Random(f"{purpose}:{digest}").uniform(-1.0, 1.0)  # noqa: S311  # reproducible jitter, not a secret
