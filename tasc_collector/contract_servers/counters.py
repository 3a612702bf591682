"""What a server counts about itself, so that its metrics routes tell the truth about the calls it got."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

Labels = Mapping[str, str]


@dataclass(slots=True)
class Counters:
    """Running totals of one server. Only its event loop writes them.

    Attributes:
        running: inference calls whose answer is being written.
        started: inference calls begun; finished: ended normally; cancelled: left by the client.
        prompt_tokens: prompt tokens of begun calls.
        generation_tokens: tokens of calls that ended normally.
        partial_tokens: tokens sent to clients that left.
        finish_reasons: ended calls per reason.
        ttft_s: sum of planned times to first token over ended calls.
        e2e_s: sum of planned durations over ended calls.
        reads: requests of any kind; a counter that moves with every call.
        iterations: one row per ended call since the last draining read (TensorRT-LLM ``/metrics``).
    """

    running: int = 0
    started: int = 0
    finished: int = 0
    cancelled: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    partial_tokens: int = 0
    finish_reasons: Counter[str] = field(default_factory=Counter)
    ttft_s: float = 0.0
    e2e_s: float = 0.0
    reads: int = 0
    iterations: deque[int] = field(default_factory=lambda: deque(maxlen=1000))

    def begin(self, prompt_tokens: int) -> None:
        """An inference call's answer begins."""
        self.running += 1
        self.started += 1
        self.prompt_tokens += prompt_tokens

    def end(self, tokens: int, reason: str, ttft_s: float, e2e_s: float) -> None:
        """An inference call's answer was written to its planned end."""
        self.running -= 1
        self.finished += 1
        self.generation_tokens += tokens
        self.finish_reasons[reason] += 1
        self.ttft_s += ttft_s
        self.e2e_s += e2e_s
        self.iterations.append(tokens)

    def abandon(self, tokens: int) -> None:
        """The client left. vLLM 0.26.0 raises no abort counter then, llama.cpp b10156 counts no output."""
        self.running -= 1
        self.cancelled += 1
        self.partial_tokens += tokens


def sample(name: str, value: float, labels: Labels | None = None) -> str:
    """One sample line of the Prometheus text format 0.0.4."""
    inner = ",".join(f'{key}="{text}"' for key, text in (labels or {}).items())
    return f"{name}{{{inner}}} {value}" if inner else f"{name} {value}"


def family(name: str, kind: str, samples: Iterable[str]) -> list[str]:
    """HELP, TYPE and sample lines of one family."""
    return [f"# HELP {name} {name}.", f"# TYPE {name} {kind}", *samples]


def histogram(name: str, total_s: float, count: int, labels: Labels | None = None) -> list[str]:
    """A histogram with two buckets; every observation is taken to be under the first bound."""
    own = dict(labels or {})
    return family(
        name,
        "histogram",
        (
            sample(f"{name}_bucket", count, {**own, "le": "60.0"}),
            sample(f"{name}_bucket", count, {**own, "le": "+Inf"}),
            sample(f"{name}_sum", total_s, own),
            sample(f"{name}_count", count, own),
        ),
    )


def exposition(*families: Iterable[str]) -> bytes:
    """The families as one text exposition."""
    return ("\n".join(line for lines in families for line in lines) + "\n").encode()
