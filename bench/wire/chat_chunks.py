"""Chat chunks read per second on one core, as a ratio to bare ``json.loads`` over the same payloads in the same run.

    python bench/wire/chat_chunks.py [--rounds 15]

Each row is one stage of the path, so the table shows where the time goes. "burst" is 16 events per read, "paced" one.
Every row is timed in turn, round by round, in CPU time of this thread; the median of its per-round ratios is printed
with their quartiles: the machine's own noise then falls on both sides of a ratio.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

from tasc_collector.runtimes.answer import AnswerReader
from tasc_collector.runtimes.profile import Framing, Route
from tasc_collector.runtimes.registry import get_profile
from tasc_collector.runtimes.result import Arrival
from tasc_collector.runtimes.verdict import Outcome
from tasc_collector.wire.json import EVENT_JSON, parse_json
from tasc_collector.wire.slot import learn_slot
from tasc_collector.wire.sse import SseDecoder

WORDS = (" the", " of", "ing", ",", " a", "é", " model", ".", " 12", " and", " token", "s", " is", "\n", " in", " x")
EVENTS = 2_048
MODEL = "meta-llama/Llama-3.1-8B-Instruct"
PATH = ("choices", 0, "delta", "content")


def _chunk(delta: dict[str, str], finish: str | None, *, spaced: bool, logprobs: bool) -> bytes:
    choice: dict[str, object] = {"index": 0, "delta": delta}
    if logprobs:
        choice["logprobs"] = None
    value = {
        "id": "chatcmpl-8f3a2c9d7e1b4a6f",
        "object": "chat.completion.chunk",
        "created": 1_732_900_000,
        "model": MODEL,
        "choices": [{**choice, "finish_reason": finish}],
    }
    return json.dumps(value, ensure_ascii=spaced, separators=None if spaced else (",", ":")).encode()


def payloads(*, spaced: bool) -> list[bytes]:
    """One answer's chunks: as vLLM writes them, or (``spaced``) as a server that uses Python's ``json`` does."""
    first = _chunk({"role": "assistant", "content": ""}, None, spaced=spaced, logprobs=not spaced)
    tokens = (_chunk({"content": WORDS[i % 16]}, None, spaced=spaced, logprobs=not spaced) for i in range(EVENTS))
    usage = {"prompt_tokens": 9, "completion_tokens": EVENTS, "total_tokens": EVENTS + 9}
    last = {**json.loads(first), "choices": [], "usage": usage}
    return [first, *tokens, _chunk({}, "stop", spaced=spaced, logprobs=not spaced), json.dumps(last).encode()]


def _reads(texts: list[bytes], size: int) -> list[bytes]:
    events = [b"data: " + text + b"\n\n" for text in [*texts, b"[DONE]"]]
    return [b"".join(events[i : i + size]) for i in range(0, len(events), size)]


def _bare(texts: list[bytes]) -> None:
    for text in texts:
        json.loads(text)


def _bounded(texts: list[bytes]) -> None:
    for text in texts:
        parse_json(text, EVENT_JSON)


def _decoded(reads: list[bytes]) -> None:
    decoder = SseDecoder()
    for read in reads:
        decoder.feed(read)


def _decoded_and_parsed(reads: list[bytes]) -> None:
    decoder = SseDecoder()
    for read in reads:
        for event in decoder.feed(read):
            if event.data != "[DONE]":
                parse_json(event.data.encode(), EVENT_JSON)


def _through_slot(reads: list[bytes], text: bytes) -> None:
    slot = learn_slot(text.decode(), parse_json(text), PATH, EVENT_JSON)
    assert slot is not None
    decoder = SseDecoder()
    for read in reads:
        if decoder.feed_slot(read, slot) is None:
            for event in decoder.feed(read):
                if event.data != "[DONE]":
                    parse_json(event.data.encode(), EVENT_JSON)


def _answered(reads: list[bytes]) -> None:
    reader = AnswerReader(get_profile("vllm", "0.26.0"), Route.CHAT_COMPLETIONS, Framing.SSE, MODEL)
    for number, read in enumerate(reads):
        reader.feed(read, Arrival(number * 1_000_000, 50_000, 20_000))
    answer = reader.finish(clean_end=True)
    assert (answer.outcome, len(answer.events)) == (Outcome.COMPLETED, EVENTS)


def _table(*, spaced: bool, rounds: int) -> None:
    texts = payloads(spaced=spaced)
    burst, paced = _reads(texts, 16), _reads(texts, 1)
    stages: dict[str, Callable[[], None]] = {
        "bare json.loads": lambda: _bare(texts),
        "bounded JSON": lambda: _bounded(texts),
        "SSE, burst": lambda: _decoded(burst),
        "SSE, paced": lambda: _decoded(paced),
        "SSE + JSON in full, burst": lambda: _decoded_and_parsed(burst),
        "SSE + JSON in full, paced": lambda: _decoded_and_parsed(paced),
        "SSE + slot, burst": lambda: _through_slot(burst, texts[1]),
        "SSE + slot, paced": lambda: _through_slot(paced, texts[1]),
        "whole answer with timeline, burst": lambda: _answered(burst),
        "whole answer with timeline, paced": lambda: _answered(paced),
    }
    times: dict[str, list[float]] = {name: [] for name in stages}
    for _ in range(rounds):
        for name, stage in stages.items():
            start = time.thread_time()
            stage()
            times[name].append(time.thread_time() - start)
    writer = "spaced, escaped (Python json)" if spaced else "compact (vLLM)"
    print(f"\n{writer}: {len(texts)} chunks, {len(texts[1])} bytes each")
    print(f"{'stage':36}{'us/chunk':>10}{'chunks/s':>12}{'x json.loads':>14}{'quartiles':>16}")
    bare = times["bare json.loads"]
    for name, seconds in times.items():
        low, middle, high = statistics.quantiles([b / s for b, s in zip(bare, seconds, strict=True)], n=4)
        each = statistics.median(seconds) / len(texts)
        print(f"{name:36}{each * 1e6:10.2f}{1 / each:12,.0f}{middle:14.2f}{f'{low:.2f} to {high:.2f}':>16}")


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    for spaced in (False, True):
        _table(spaced=spaced, rounds=rounds)


if __name__ == "__main__":
    main()
