"""UTF-8 in every format, whole and at every cut, against the decoder test files of others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tasc_collector.errors import WireError
from tasc_collector.wire.json import parse_json
from tasc_collector.wire.ndjson import NdjsonDecoder
from tasc_collector.wire.prometheus import PrometheusDecoder
from tasc_collector.wire.sse import SseDecoder

VECTORS = Path(__file__).resolve().parents[3] / "shared" / "vectors" / "utf8"
CASES: list[dict[str, Any]] = (  # Any: JSON
    json.loads((VECTORS / "cases.json").read_bytes())["cases"] if VECTORS.is_dir() else []
)
KUHN = VECTORS / "UTF-8-test.kuhn.txt"

needs_vectors = pytest.mark.skipif(not CASES, reason="the UTF-8 vectors are not beside this repository")


def _cuts(data: bytes) -> list[list[bytes]]:
    return [[data], *([data[:i], data[i:]] for i in range(1, len(data))), [data[i : i + 1] for i in range(len(data))]]


def _sse(chunks: list[bytes]) -> str:
    decoder, events = SseDecoder(), []
    for chunk in chunks:
        events += decoder.feed(chunk)
    decoder.finish()
    return events[0].data


def _ndjson(chunks: list[bytes]) -> str:
    decoder, rows = NdjsonDecoder(), []
    for chunk in chunks:
        rows += decoder.feed(chunk)
    assert decoder.finish() == []
    return str(rows[0])


def _label(chunks: list[bytes]) -> str:
    decoder = PrometheusDecoder()
    for chunk in chunks:
        decoder.feed(chunk)
    return decoder.finish().named("a")[0].labels[0][1]


@needs_vectors
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['id']}-{case['hex'][:16]}")
def test_case(case: dict[str, Any]) -> None:  # Any: JSON
    raw = bytes.fromhex(case["hex"])
    plain = not any(byte < 0x20 or byte in b'"\\' for byte in raw)
    frames = {_sse: b"data: " + raw + b"\n\n"}
    if plain:
        frames |= {_ndjson: b'"' + raw + b'"\n', _label: b'a{x="' + raw + b'"} 1\n'}
    for read, data in frames.items():
        for chunks in _cuts(data):
            if case["valid"]:
                assert read(chunks) == raw.decode()
            else:
                with pytest.raises(WireError) as refused:
                    read(chunks)
                assert refused.value.code == "invalid-utf8"
    if plain:
        if case["valid"]:
            assert parse_json(b'"' + raw + b'"') == raw.decode()
        else:
            with pytest.raises(WireError) as refused:
                parse_json(b'"' + raw + b'"')
            assert refused.value.code == "invalid-utf8"


@pytest.mark.skipif(not KUHN.is_file(), reason="the UTF-8 stress test is not beside this repository")
def test_stress_file_line_by_line() -> None:
    lines = KUHN.read_bytes().split(b"\n")
    assert len(lines) > 100
    for line in lines:
        data = b"data: " + line + b"\n\n"
        try:
            text = line.decode()
        except UnicodeDecodeError:
            with pytest.raises(WireError):
                _sse([data])
        else:
            assert _sse([data]) == text.replace("\r", "\n").removesuffix("\n")
