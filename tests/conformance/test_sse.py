"""Server-sent events against the cases of six public test suites and our own."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tasc_collector.errors import WireError
from tasc_collector.wire.sse import SseDecoder

PATH = Path(__file__).resolve().parents[3] / "shared" / "vectors" / "sse" / "cases.json"
CASES: list[dict[str, Any]] = json.loads(PATH.read_bytes())["cases"] if PATH.is_file() else []  # Any: JSON

needs_vectors = pytest.mark.skipif(not CASES, reason="the SSE vectors are not beside this repository")


def _read(chunks: list[bytes]) -> tuple[list[dict[str, str]], int | None, str]:
    decoder, events, verdict = SseDecoder(), [], ""
    try:
        for chunk in chunks:
            events += decoder.feed(chunk)
        decoder.finish()
        verdict = "truncated" if decoder.trailing_incomplete else "complete"
    except WireError as error:
        verdict = error.code
    seen = [{"type": event.event or "message", "data": event.data, "id": event.id} for event in events]
    return seen, decoder.retry_ms, verdict


def _cuts(data: bytes, seed: int) -> list[bytes]:
    chance = random.Random(seed)
    places = sorted(chance.sample(range(1, len(data)), min(len(data) - 1, chance.randint(1, 8))))
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]


@needs_vectors
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_case(case: dict[str, Any]) -> None:  # Any: JSON
    chunks = [bytes.fromhex(chunk) for chunk in case["chunks_hex"] if chunk]
    data = b"".join(chunks)
    ways = [chunks, [data[i : i + 1] for i in range(len(data))]]
    if len(data) > 2:
        ways += [_cuts(data, seed) for seed in range(20)]
    if "invalid-utf8" in case["tags"] and "truncation" not in case["tags"]:
        kept = []  # WHATWG replaces bad bytes; we refuse the event that has them and what follows it
        for event in case["events"]:
            if "\N{REPLACEMENT CHARACTER}" in event["data"]:
                break
            kept.append(event)
        for way in ways:
            assert _read(way)[::2] == (kept, "invalid-utf8")
    else:
        for way in ways:
            events, retry, verdict = _read(way)
            assert (events, retry) == (case["events"], case["retry"])
            if "truncation" in case["tags"]:
                assert verdict == "truncated"
            else:
                assert verdict in {"complete", "truncated"}
