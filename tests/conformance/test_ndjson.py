"""NDJSON against our own cases: what the parser alone can tell about each of them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tasc_collector.errors import WireError
from tasc_collector.wire.ndjson import NdjsonDecoder

PATH = Path(__file__).resolve().parents[3] / "shared" / "vectors" / "ndjson" / "cases.json"
CASES: list[dict[str, Any]] = json.loads(PATH.read_bytes())["cases"] if PATH.is_file() else []  # Any: JSON

needs_vectors = pytest.mark.skipif(not CASES, reason="the NDJSON vectors are not beside this repository")

DIALECT = {"array", "scalar", "null", "after-done", "two-done", "done-string", "done-1", "negative-count"}
"""Violations of Ollama's dialect that are well-formed rows: the reader of answers refuses them, not this parser."""
BLANK = {"blank-line", "spaces-line"}
"""Rows that the cases leave to policy: ours is the original's, a blank row is refused."""


def _read(chunks: list[bytes]) -> tuple[int, str]:
    decoder, rows = NdjsonDecoder(), 0
    try:
        for chunk in chunks:
            rows += len(decoder.feed(chunk))
        rows += len(decoder.finish())
    except WireError as error:
        return rows, error.code
    return rows, "truncated" if decoder.trailing_incomplete else "complete"


def _ways(chunks: list[bytes]) -> list[list[bytes]]:
    data = b"".join(chunks)
    ways = [chunks]
    if len(data) <= 4096:
        ways.append([data[i : i + 1] for i in range(len(data))])
    for seed in range(20):
        chance = random.Random(seed)
        places = sorted(chance.sample(range(1, len(data)), min(len(data) - 1, 5))) if len(data) > 2 else []
        ways.append([data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)])
    return ways


@needs_vectors
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_case(case: dict[str, Any]) -> None:  # Any: JSON
    results = {_read(way) for way in _ways([bytes.fromhex(chunk) for chunk in case["chunks_hex"] if chunk])}
    assert len(results) == 1
    rows, verdict = results.pop()
    if case["id"] in BLANK:
        assert verdict == "blank-line"
    elif case["expect"] == "violation" and case["id"] not in DIALECT:
        assert verdict not in {"complete", "truncated"}
    else:
        assert verdict in {"complete", "truncated"}
        if case["rows"] is not None:
            assert rows == case["rows"]
        if case["expect"] in {"complete", "policy"}:
            assert verdict == "complete"
