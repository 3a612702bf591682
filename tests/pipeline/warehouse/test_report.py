from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from tasc_collector.contracts.report import FairnessItem
from tasc_pipeline.warehouse import charts, connect, record_rows
from tasc_pipeline.warehouse.publish import publish
from tasc_pipeline.warehouse.report import render_report
from tasc_pipeline.warehouse.report_data import HarnessScore, Series, ServerLatency, load
from tasc_pipeline.warehouse.schemas import DEVICE_SAMPLES
from tasc_pipeline.warehouse.tables_collection import DeviceSampleRow
from tasc_pipeline.warehouse.window_report import render_window
from tests.support import sample_warehouse

KEY = sample_warehouse.KEYS[1]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("state")
    sample_warehouse.build(folder)
    return folder


@pytest.fixture(scope="module")
def rendered(home):
    return render_window(home, sample_warehouse.assessment(KEY))


def pictures(html: str) -> list[str]:
    return re.findall(r"<svg.*?</svg>", html, flags=re.DOTALL)


def test_the_same_input_gives_the_same_bytes(home, rendered) -> None:
    assert render_window(home, sample_warehouse.assessment(KEY)) == rendered


def test_the_sentence_comes_first_with_a_word_and_a_symbol(rendered) -> None:
    sentence = "vllm-0-33-0 is worse than vllm-0-26-0: TPOT 10 % higher"
    assert rendered.html.index("✖ worse") < rendered.html.index(sentence) < rendered.html.index("<table>")
    assert "**✖ worse** vllm-0-33-0 is worse than vllm-0-26-0" in rendered.markdown


def test_every_figure_of_the_record_is_shown_with_interval_margin_and_verdict(rendered) -> None:
    for cells in (
        ("TTFT median ratio", "0.79", "0.76 to 0.83 (95 %)", "≤ 1.05", "● no-worse", "76 / 20", "±2 %"),
        ("ITL median ratio (shown only)", "1.09", "1.07 to 1.12 (95 %)", "≤ 1.05", "✖ worse", "76 / 20", "±2 %"),
        (
            "failure rate difference",
            "0.025",
            "-0.01 to 0.06 (95 %)",
            "≤ 0.05",
            "◆ undecided",
            "78 / 20",
            "unavailable",
        ),
    ):
        assert "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>" in rendered.html
        assert "| " + " | ".join(cells) + " |" in rendered.markdown


def test_the_tiles_say_what_a_reader_takes_away(rendered) -> None:
    tiles = re.findall(r'<div class="tile (\w+)">(.*?)</div>', rendered.html)
    texts = [(tone, re.sub(r"(<[^>]+>)+", "|", tile).strip("|")) for tone, tile in tiles]
    assert texts[0] == (
        "good",
        "TTFT, median|170 → 136 ms|ratio 0.79 (0.76 to 0.83), margin 1.05, noise floor ±2 %|● no-worse",
    )
    assert texts[1] == (
        "bad",
        "TPOT, median|9.9 → 9.9 ms|ratio 1.1 (1.08 to 1.12), margin 1.05, noise floor ±2 %|✖ worse",
    )
    assert texts[-1] == (
        "open",
        "Failure rate|0 % → 2.5 %|2.5 % more (-1 to 6 %), margin 5 %, noise floor unavailable|◆ undecided",
    )
    assert (
        "| TTFT, median | 170 → 136 ms | ratio 0.79 (0.76 to 0.83), margin 1.05, noise floor ±2 % | ● no-worse |"
        in rendered.markdown
    )


def test_a_quantity_that_one_side_alone_reports_is_not_called_balanced(home) -> None:
    report = sample_warehouse.assessment(KEY)
    [result] = report.comparisons
    items = (
        FairnessItem(item="tls", champion=None, candidate=None, unit="ms", imbalanced=False),
        FairnessItem(item="queue", champion=3.0, candidate=None, unit="ms", imbalanced=False),
    )
    changed = report.model_copy(update={"comparisons": (result.model_copy(update={"fairness": items}),)})
    html = render_window(home, changed).html
    assert "<td>queue</td><td>3</td><td>not available</td><td>ms</td><td>◆ known of one side only</td>" in html
    assert "Known of neither side: tls." in html


def test_unknowns_reasons_imbalance_and_what_is_missing_are_said(rendered) -> None:
    for text in (
        "sent unknown",
        "connect-failed",
        "⚠ imbalanced",
        "power draw: neither host reports it",
        "159 of 160 planned",
    ):
        assert text in rendered.html
        assert text in rendered.markdown


def test_charts_are_small_wellformed_and_follow_the_page_in_light_and_dark(rendered) -> None:
    held = pictures(rendered.html)
    assert len(held) == 6
    for svg in held:
        root = ET.fromstring(svg)  # noqa: S314 - our own text
        assert float(root.get("width").removesuffix("px")) in (526.0, 1070.0)
        assert root.get("aria-label")
        assert "currentColor" in svg
        assert "#000000" not in svg
        assert len(svg) < 60_000
    assert len(rendered.markdown) < 200_000


def test_profiles_differ_by_dash_and_mark_not_only_by_colour(home) -> None:
    with connect(home) as session:
        svg = charts.distribution(load(session, KEY).ttft, "TTFT (ms)")
    dashes = set(re.findall(r"stroke-dasharray: ([^;\"]+)", svg))
    assert len(dashes) == 1
    assert svg.count("vllm-0-26-0 (champion)") == 1
    assert svg.count("vllm-0-33-0 (candidate)") == 1


def test_a_wide_noise_floor_does_not_stretch_the_axis_of_ratios() -> None:
    [result] = sample_warehouse.assessment(KEY).comparisons
    wide = tuple(item.model_copy(update={"noise_floor": 9.0}) for item in result.ratios)
    marks = [
        re.findall(r">([0-9.]+)</text>", charts.intervals(shown, width_px=526))
        for shown in (result, result.model_copy(update={"ratios": wide}))
    ]
    assert marks[0] == marks[1]
    assert {float(mark) for mark in marks[1]} <= {0.7 + 0.05 * step for step in range(11)} | {
        round(0.7 + 0.05 * step, 2) for step in range(11)
    }


def test_small_numbers_on_an_axis_keep_their_digits(home) -> None:
    with connect(home) as session:
        data = load(session, KEY)
    usage = Series("kv-cache-usage of champion", "", ((0.0, 0.001), (1.0, 0.009)))
    texts = re.findall(r">([0-9.]+)</text>", charts.strip(replace(data, strip=(usage,)), width_px=1070))
    assert {text for text in texts if text.startswith("0.00")} == {"0.000", "0.004", "0.008"}


def test_a_caption_never_makes_a_figure_wider_than_its_picture(rendered) -> None:
    limits = re.findall(r'<figure style="max-width:min\(([0-9.]+)px,100%\)">', rendered.html)
    assert set(limits) == {"526", "1070"}
    assert len(limits) == rendered.html.count("<figure")


def test_the_page_asks_nothing_of_anyone_and_escapes_what_it_shows(home) -> None:
    report = sample_warehouse.assessment(KEY)
    hostile = report.model_copy(update={"missing": ("<script>alert(1)</script> | `x` [y](z)",)})
    with connect(home) as session:
        rendered = render_report(hostile, load(session, KEY))
    assert "<script" not in rendered.html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in rendered.html
    assert "<script" not in rendered.markdown
    assert "\\`x\\` \\[y\\](z)" in rendered.markdown
    assert "default-src 'none'" in rendered.html
    assert not re.search(r'(src|href)="(?!#)', rendered.html.replace("xlink:href", "link"))


def test_charts_come_from_the_views(home) -> None:
    with connect(home) as session:
        data = load(session, KEY)
        (median,) = session.execute(
            "SELECT median(ttft_ms) FROM traces WHERE window_key = ? AND role = 'champion' AND status = 'success'",
            [KEY],
        ).fetchone()
    champion, candidate = data.ttft
    assert (champion.role, champion.count, champion.percentiles[50]) == ("champion", 79, median)
    assert (candidate.role, candidate.count) == ("candidate", 77)
    assert data.ratios["vllm-0-33-0", "ttft"].percentiles[50] < 1 < data.ratios["vllm-0-33-0", "tpot"].percentiles[50]
    assert {series.label for series in data.strip} == {
        "requests-running of champion",
        "requests-running of candidate",
        "utilization of host-1 gpu-0",
        "utilization of host-1 gpu-1",
    }


def test_the_time_strip_shows_how_hot_devices_were(house, make_rows) -> None:
    key, start_ms = "w1.r01-0a1b2c3d", 1_795_953_600_000
    house.publish_traces(key, make_rows(key))
    samples = [
        DeviceSampleRow(
            window_key=key,
            node_id="host-1",
            device_id="gpu-0",
            device_kind="accelerator",
            phase="during",
            sampled_at=start_ms + offset_ms,
            metric="temperature",
            value=value,
            unit="celsius",
        )
        for offset_ms, value in ((100, 61.0), (900, 74.0))
    ]
    publish(house.root, "device_samples", key, DEVICE_SAMPLES.from_rows(samples), sign=house.signer, clock=house.clock)
    house.build()
    with connect(house.home) as session:
        data = load(session, key)
    [heat] = data.strip
    assert (heat.label, heat.unit) == ("temperature of host-1 gpu-0", "celsius")
    assert [value for _, value in heat.points] == [61.0, 74.0]
    assert "device temperature (celsius)" in charts.strip(data, width_px=charts.WIDE_PX)


def test_a_side_that_alone_is_reached_over_loopback_is_marked_path_differs(home) -> None:
    report = sample_warehouse.assessment(KEY)
    [result] = report.comparisons
    path = FairnessItem(item="loopback-path", champion=1.0, candidate=0.0, unit="yes-no", imbalanced=True)
    changed = report.model_copy(update={"comparisons": (result.model_copy(update={"fairness": (path,)}),)})
    rendered = render_window(home, changed)
    row = ("loopback-path", "1", "0", "yes-no", "⚠ path differs")
    assert "".join(f"<td>{cell}</td>" for cell in row) in rendered.html
    assert "| " + " | ".join(row) + " |" in rendered.markdown


def test_a_window_without_rows_still_has_a_report(house) -> None:
    house.build()
    rendered = render_window(house.home, sample_warehouse.assessment("empty.r01-00000000"))
    assert "✖ worse" in rendered.html
    assert "Over time" not in rendered.html


def test_gates_and_decisions_rows_equal_the_record() -> None:
    report = sample_warehouse.assessment(KEY)
    gates = record_rows.gates_table(report).to_pylist()
    assert [row["gate"] for row in gates] == [
        "ttft-median-ratio",
        "itl-median-ratio",
        "tpot-median-ratio",
        "e2e-median-ratio",
        "failure-rate-difference",
    ]
    assert (gates[0]["actual"], gates[0]["interval_low"], gates[0]["threshold"], gates[0]["verdict"]) == (
        0.79,
        0.76,
        1.05,
        "no-worse",
    )
    (decision,) = record_rows.decisions_table(report).to_pylist()
    assert (decision["result"], decision["coverage"]) == ("worse", 0.9625)
    assert decision["report_digest"].hex() == report.digest.removeprefix("sha256:")


def test_what_the_servers_measured_themselves_stands_in_a_table_where_they_do(home, rendered) -> None:
    with connect(home) as session:
        data = load(session, KEY)
    measured = ServerLatency("champion", "ttft-seconds", 40, 12.5, 48.0)
    shown = render_report(sample_warehouse.assessment(KEY), replace(data, servers=(measured,)))
    assert "| champion, TTFT | 40 | 12.5 | 48 |" in shown.markdown
    assert "What the servers say of themselves" in shown.html
    whole = replace(measured, count=50, lowest_ms=60_000.0)
    coarse = render_report(sample_warehouse.assessment(KEY), replace(data, servers=(whole,))).html
    assert "all 50 observations lie in the lowest bucket of its histogram, below 60,000 ms" in coarse
    assert "95th percentile</th>" not in coarse
    assert "What the servers say of themselves" not in rendered.html


def test_scores_of_a_harness_are_told_apart_from_gates(home, rendered) -> None:
    with connect(home) as session:
        data = load(session, KEY)
    score = HarnessScore("candidate-vllm", "lm-evaluation-harness", "acc,none", 200, 0.625)
    shown = render_report(sample_warehouse.assessment(KEY), replace(data, harness=(score,)))
    assert "| candidate-vllm | lm-evaluation-harness | acc,none | 200 | 0.625 |" in shown.markdown
    assert "Scores of other answers, in no gate" in shown.html
    assert "Scores of other answers, in no gate" not in rendered.html
