"""How long a call is expected to take: as measured in an earlier window, as the operator says, or assumed. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tasc_collector.contracts.report import AssessmentReport

ASSUMED_TOKENS_PER_S: Final = 20.0
"""A slow single stream: for the expected time of a window where nothing was measured and nobody said more."""


@dataclass(frozen=True, slots=True)
class Pace:
    """What an expected time is made from.

    Args:
        tokens_per_s: output tokens per second of one call, its prompt included.
        seconds_per_call: mean of what was measured; None where nothing was.
        basis: where it is from, for the line that shows the time.
    """

    tokens_per_s: float = ASSUMED_TOKENS_PER_S
    seconds_per_call: float | None = None
    basis: str = f"assuming {ASSUMED_TOKENS_PER_S:g} tokens/s; say better with --tokens-per-second"

    def call_s(self, output_tokens: float) -> float:
        """Seconds of one call that may generate so many tokens."""
        return self.seconds_per_call or max(output_tokens, 1) / self.tokens_per_s


def given(tokens_per_s: float) -> Pace:
    """The operator's word."""
    return Pace(tokens_per_s, basis=f"at {tokens_per_s:g} tokens/s, as given")


def measured(report: AssessmentReport) -> Pace | None:
    """The mean end-to-end time of a window's successful calls, over all profiles; None where it had none."""
    means = [
        (item.count, item.mean_ms)
        for profile in report.profiles
        for item in profile.latencies
        if item.metric == "e2e" and item.mean_ms is not None
    ]
    calls = sum(count for count, _ in means)
    if not calls:
        return None
    seconds = sum(count * mean for count, mean in means) / calls / 1000
    return Pace(seconds_per_call=seconds, basis=f"{seconds:.3g} s per call, as measured in {report.window_key}")
