from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasc_collector.errors import InputError, WireError
from tasc_collector.wire.prometheus import (
    MetricType,
    PrometheusDecoder,
    PrometheusLimits,
    Sample,
    parse_prometheus,
)

SCRAPE = b"""# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 2.0
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{model_name="m",engine="0"} 1.5e3
# TYPE vllm:prompt_tokens_created gauge
vllm:prompt_tokens_created{engine="0",model_name="m"} 1.7e+09
# TYPE ttft histogram
ttft_bucket{le="0.1"} 1
ttft_bucket{le="+Inf"} 3
ttft_sum 0.5
ttft_count 3
undeclared 7 1700000000123
"""


def test_a_scrape_as_vllm_writes_it() -> None:
    read = parse_prometheus(SCRAPE)
    assert {name: (family.type, len(family.samples)) for name, family in read.families.items()} == {
        "vllm:num_requests_running": (MetricType.GAUGE, 1),
        "vllm:prompt_tokens_total": (MetricType.COUNTER, 1),
        "vllm:prompt_tokens_created": (MetricType.GAUGE, 1),
        "ttft": (MetricType.HISTOGRAM, 4),
        "undeclared": (MetricType.UNTYPED, 1),
    }
    labels = (("engine", "0"), ("model_name", "m"))
    assert read.named("vllm:prompt_tokens_total") == (Sample("vllm:prompt_tokens_total", labels, 1500.0, None),)
    assert read.named("undeclared") == (Sample("undeclared", (), 7.0, 1_700_000_000_123),)
    assert [sample.value for sample in read.named("ttft_bucket")] == [1.0, 3.0]
    assert (read.non_finite, read.native_histograms, read.repeated, read.open_metrics) == (0, 0, 0, False)


def test_values_that_are_not_finite_are_left_out_and_counted() -> None:
    read = parse_prometheus(b'a NaN\na{x="1"} +Inf\nb -inf\nc 1e999\nd 1\n')
    assert (read.non_finite, read.families["a"].samples, read.named("d")[0].value) == (4, (), 1.0)


def test_openmetrics_is_tolerated() -> None:
    text = b"""# TYPE a counter
# UNIT a_seconds seconds
a_total{x="1"} 5 1700000000.25 # {trace_id="t"} 0.5 1700000000
a_created{x="1"} 1.7e9
# TYPE i info
i_info{v="1"} 1
# EOF
"""
    read = parse_prometheus(text)
    assert read.open_metrics
    assert read.families["a"].samples[0] == Sample("a_total", (("x", "1"),), 5.0, 1_700_000_000_250)
    assert read.families["a"].samples[1].name == "a_created"
    assert read.families["i"].type is MetricType.INFO


def test_label_values_are_unescaped() -> None:
    read = parse_prometheus(b'a{x="q\\"b\\\\n\\n", y = "#}{," , } 1\n')
    assert read.named("a")[0].labels == (("x", 'q"b\\n\n'), ("y", "#}{,"))


@pytest.mark.parametrize(
    ("text", "code", "offset"),
    [
        (b"a 1\na 1\n", "duplicate-sample", 4),
        (b'a{x="1",y="2"} 1\na{y="2",x="1"} 2\n', "duplicate-sample", 17),
        (b"a 1 5\na 2 5\n", "duplicate-sample", 6),
        (b"a NaN\na 1\n", "duplicate-sample", 6),
        (b"a 1\nb", "unsupported-syntax", 4),
        (b"a 12", "unsupported-syntax", 0),
        (b"a 1\r\n", "unsupported-syntax", 0),
        (b"a 0x10\n", "unsupported-syntax", 0),
        (b"a 1_0\n", "unsupported-syntax", 0),
        (b"a1.5\n", "unsupported-syntax", 0),
        (b"a 1 2 3\n", "unsupported-syntax", 0),
        (b'a{x="1" y="2"} 1\n', "unsupported-syntax", 0),
        (b'a{x="1",x="2"} 1\n', "unsupported-syntax", 0),
        (b'a{x="1} 1\n', "unsupported-syntax", 0),
        (b"# TYPE a gauge\n# TYPE a gauge\n", "unsupported-syntax", 15),
        (b"a 1\n# TYPE a gauge\n", "unsupported-syntax", 4),
        (b'# TYPE a histogram\na_bucket{le="x"} 1\n', "unsupported-syntax", 19),
        (b"a 1\n# EOF\nb 1\n", "unsupported-syntax", 10),
        (b"<html>\n", "unsupported-syntax", 0),
        (b'a{x="\xff"} 1\n', "invalid-utf8", 0),
        (b"\xef\xbb\xbfa 1\n", "utf8-bom", 0),
    ],
)
def test_refusals_name_the_line(text: bytes, code: str, offset: int) -> None:
    with pytest.raises(WireError) as refused:
        parse_prometheus(text)
    assert (refused.value.code, refused.value.offset) == (code, offset)


@pytest.mark.parametrize(
    ("limits", "text", "code"),
    [
        (PrometheusLimits(max_bytes=7), b"a 1\nb 1\n", "byte-limit"),
        (PrometheusLimits(max_lines=1), b"a 1\nb 1\n", "line-limit"),
        (PrometheusLimits(max_line_bytes=4), b"a 123\n", "line-byte-limit"),
        (PrometheusLimits(max_line_bytes=4), b"a 123", "line-byte-limit"),
        (PrometheusLimits(max_samples=1), b"a 1\nb 1\n", "sample-limit"),
        (PrometheusLimits(max_labels=1), b'a{x="",y=""} 1\n', "label-limit"),
        (PrometheusLimits(max_label_name=1), b'a{xx=""} 1\n', "label-limit"),
        (PrometheusLimits(max_label_value=1), b'a{x="12"} 1\n', "label-limit"),
        (PrometheusLimits(max_name=1), b"aa 1\n", "name-limit"),
        (PrometheusLimits(max_name=1), b"# TYPE aa gauge\n", "name-limit"),
    ],
)
def test_limits(limits: PrometheusLimits, text: bytes, code: str) -> None:
    with pytest.raises(WireError) as refused:
        parse_prometheus(text, limits)
    assert refused.value.code == code


def test_bounds_have_hard_maxima() -> None:
    with pytest.raises(InputError) as refused:
        PrometheusLimits(max_labels=65)
    assert refused.value.field == "max_labels"


@pytest.mark.parametrize("time", ["1e999999999", "1e-999999999", "123456789012345678901234567890", "1e18"])
def test_a_time_out_of_this_world_costs_nothing(time: str) -> None:
    text = f"a 1 {time}\n# EOF\n".encode()
    try:
        assert parse_prometheus(text).named("a")[0].timestamp_ms is not None
    except WireError as error:
        assert error.code == "unsupported-syntax"


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(1, len(SCRAPE) - 1), max_size=6))
def test_how_chunks_are_cut_changes_nothing(places: list[int]) -> None:
    decoder = PrometheusDecoder()
    cuts = [0, *sorted(set(places)), len(SCRAPE)]
    for a, b in pairwise(cuts):
        decoder.feed(SCRAPE[a:b])
    assert decoder.finish() == parse_prometheus(SCRAPE)


@settings(max_examples=150, deadline=None)
@given(st.integers(1, len(SCRAPE) - 1))
def test_a_cut_scrape_is_refused_or_ends_at_a_line(place: int) -> None:
    if SCRAPE[place - 1 : place] == b"\n":
        assert len(parse_prometheus(SCRAPE[:place]).families) <= 5
    else:
        with pytest.raises(WireError):
            parse_prometheus(SCRAPE[:place])
