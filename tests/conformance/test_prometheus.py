"""Prometheus text against the cases of its Go and Python parsers and of OpenMetrics."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest

from tasc_collector.errors import WireError
from tasc_collector.wire.prometheus import Exposition, PrometheusDecoder, parse_prometheus

VECTORS = Path(__file__).resolve().parents[3] / "shared" / "vectors" / "prometheus"
EXPFMT = sorted((VECTORS / "expfmt" / "expfmt" / "fuzz" / "corpus").glob("*"))
OPENMETRICS = sorted((VECTORS / "openmetrics" / "tests" / "testdata" / "parsers").glob("*/test.json"))


def _recorded(name: str) -> list[dict[str, Any]]:  # Any: JSON
    path = VECTORS / f"client_python_{name}_cases.json"
    return json.loads(path.read_bytes())["cases"] if path.is_file() else []


BROKEN_SYNTAX = (
    "bad_invalid_labels",
    "bad_metric_names",
    "bad_missing_equal",
    "bad_missing_or_extra_commas",
    "bad_missing_or_wrong",
    "bad_missing_value",
    "bad_text_after_eof",
    "bad_timestamp",
    "bad_exemplar_timestamp",
    "bad_value",
    "bad_clashing_names",
)
"""Bad files of OpenMetrics that no reader can make sense of. The other bad ones break its rules about meaning or order,
such as a counter that is NaN: those are what exporters really write, and a scrape must survive them."""
CLASSIC = {
    "bad_invalid_labels_6",  # no space between labels and value
    "bad_missing_or_extra_commas_2",  # a comma after the last label
    "bad_value_1",
    "bad_value_2",
    "bad_value_3",  # more white space than one blank
    "bad_clashing_names_2",  # a family whose name is another's with "_created"
}
"""What classic text allows and OpenMetrics does not."""
TEXT, OM = _recorded("text"), _recorded("openmetrics")
needs_vectors = pytest.mark.skipif(not TEXT, reason="the Prometheus vectors are not beside this repository")


def _in_pieces(data: bytes, seed: int) -> Exposition:
    decoder, chance, rest = PrometheusDecoder(), random.Random(seed), data
    while rest:
        size = chance.randint(1, 40)
        decoder.feed(rest[:size])
        rest = rest[size:]
    return decoder.finish()


def _check(case: dict[str, Any], *, seconds: bool) -> None:  # Any: JSON
    read = parse_prometheus(case["text"].encode())
    assert _in_pieces(case["text"].encode(), 7) == read
    expected, left_out, native = [], 0, 0
    for family in case["families"]:
        for sample in family["samples"]:
            value = float(sample["value"]) if sample["value"] is not None else 0.0
            if sample["native_histogram"]:
                native += 1
            elif not math.isfinite(value):
                left_out += 1
            else:
                time = sample["timestamp"]
                milliseconds = None if time is None else math.floor(round(float(time) * 1e9) / 1e6)
                expected.append((sample["name"], sorted(sample["labels"].items()), value, milliseconds))
    got = []
    for family in read.families.values():
        for sample in family.samples:
            # the Python client renames the classic counter `a` to `a_total`; we keep what was sent
            renamed = not seconds and family.type == "counter" and not sample.name.endswith("_total")
            name = sample.name + "_total" if renamed else sample.name
            got.append((name, sorted(sample.labels), sample.value, sample.timestamp_ms))
    assert (read.non_finite, read.native_histograms) == (left_out, native)
    assert len(got) == len(expected)
    for ours, theirs in zip(sorted(got, key=str), sorted(expected, key=str), strict=True):
        assert ours[:3] == theirs[:3]
        if theirs[3] is None or abs(theirs[3]) < 2**53:
            assert ours[3] == theirs[3]


@needs_vectors
@pytest.mark.parametrize("case", TEXT, ids=lambda case: repr(case["text"])[:60])
def test_classic_text(case: dict[str, Any]) -> None:  # Any: JSON
    if case["ok"]:
        _check(case, seconds=False)
    else:
        with pytest.raises(WireError):
            parse_prometheus(case["text"].encode())


@needs_vectors
@pytest.mark.parametrize("case", [case for case in OM if case["ok"]], ids=lambda case: repr(case["text"])[:60])
def test_openmetrics_is_read(case: dict[str, Any]) -> None:  # Any: JSON
    _check(case, seconds=True)


@needs_vectors
@pytest.mark.parametrize("path", EXPFMT, ids=lambda path: path.name)
def test_go_parser_corpus(path: Path) -> None:
    if "error" in path.name:
        with pytest.raises(WireError):
            parse_prometheus(path.read_bytes())
    else:
        read = parse_prometheus(path.read_bytes())
        assert not read.open_metrics


@needs_vectors
@pytest.mark.parametrize("path", OPENMETRICS, ids=lambda path: path.parent.name)
def test_openmetrics_file(path: Path) -> None:
    data, name = (path.parent / "metrics").read_bytes(), path.parent.name
    if json.loads(path.read_bytes())["shouldParse"]:
        assert parse_prometheus(data).open_metrics
    elif name.startswith(BROKEN_SYNTAX) and name not in CLASSIC:
        with pytest.raises(WireError):
            parse_prometheus(data)
    else:
        try:
            read = parse_prometheus(data)
        except WireError as error:
            assert error.way_out
        else:
            assert all(math.isfinite(s.value) for family in read.families.values() for s in family.samples)
