"""How one contract server behaves: timing, lengths, faults, and to which calls the fault applies."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tasc_collector.errors import InputError


class FaultScope(StrEnum):
    """The calls that a fault may hit."""

    INFERENCE = "inference"
    OBSERVATION = "observation"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files of the server's chain (leaf first) and private key."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Everything that a caller can choose about a contract server's answers.

    Attributes:
        ttft_ms: from the request's last byte to the first token.
        itl_ms: between two events that carry tokens.
        role_ms: time of frames before the first token; None sends them with it, as the engines do.
        tokens: answer length in tokens, where the request's cap does not end it.
        tokens_spread: up to this many tokens are added, by case.
        timing_spread: both delays are scaled by 1 +- this, by case; 0 to 1.
        tokens_per_event: tokens that one event carries.
        events_per_write: events that are due together and go out in one write.
        reasoning_tokens: reasoning events before the answer.
        cached_tokens: reported cached prompt tokens; None reports none.
        answer_prefix: put before the answer of every case; tests put a canary here.
        model: the served model; None serves the runtime's default name.
        fault: a name of ``faults.FAULTS``, or None.
        fault_calls: 1-based numbers of the calls (in the fault's scope) that it hits; None hits all.
        fault_share: share of the calls that it hits, chosen by seed, case and occurrence; None hits all.
        fault_scope: overrides the scope that the fault declares.
        fault_at: tokens that pass before a fault that breaks a stream; None breaks in the middle.
        retry_after_s: the Retry-After of 429 and 503 answers; None sends none.
        seed: chooses the calls of ``fault_share``.
        stamp: every event carries the server's monotonic send time in ns, as SSE comment ``: sent_ns N`` or, in
            newline-delimited JSON, as the field ``sent_ns``.
    """

    ttft_ms: float = 0.0
    itl_ms: float = 0.0
    role_ms: float | None = None
    tokens: int = 16
    tokens_spread: int = 0
    timing_spread: float = 0.0
    tokens_per_event: int = 1
    events_per_write: int = 1
    reasoning_tokens: int = 0
    cached_tokens: int | None = None
    answer_prefix: str = ""
    model: str | None = None
    fault: str | None = None
    fault_calls: frozenset[int] | None = None
    fault_share: float | None = None
    fault_scope: FaultScope | None = None
    fault_at: int | None = None
    retry_after_s: int | None = 1
    seed: int = 0
    stamp: bool = False

    def __post_init__(self) -> None:
        ranges: tuple[tuple[str, float, float, float], ...] = (
            ("ttft_ms", self.ttft_ms, 0, 3_600_000),
            ("itl_ms", self.itl_ms, 0, 3_600_000),
            ("tokens", self.tokens, 0, 1_000_000),
            ("tokens_spread", self.tokens_spread, 0, 1_000_000),
            ("timing_spread", self.timing_spread, 0, 1),
            ("tokens_per_event", self.tokens_per_event, 1, 1_000),
            ("events_per_write", self.events_per_write, 1, 10_000),
            ("reasoning_tokens", self.reasoning_tokens, 0, 1_000_000),
            ("fault_share", self.fault_share or 0, 0, 1),
        )
        for name, value, low, high in ranges:
            if not low <= value <= high:
                raise InputError(
                    "the value is out of range",
                    where="contract server",
                    field=name,
                    rule=f"{low} to {high}",
                    way_out="choose a value in that range",
                )

    def hits(self, number: int, key: str) -> bool:
        """True if the fault applies to a call.

        Args:
            number: 1-based number of the call within the fault's scope.
            key: what names the call independently of arrival order (case digest and occurrence), or its number.
        """
        if self.fault is None:
            return False
        if self.fault_calls is not None and number not in self.fault_calls:
            return False
        if self.fault_share is None:
            return True
        drawn = int.from_bytes(hashlib.sha256(f"{self.seed}:{key}".encode()).digest()[:8], "big")
        return drawn < self.fault_share * 2**64
