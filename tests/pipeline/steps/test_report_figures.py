"""What the report of a real window shows is what SQL gives, to the last digit that is shown."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

import pytest

from tasc_pipeline.steps import assess, close, collect, publish
from tasc_pipeline.warehouse.database import connect
from tasc_pipeline.warehouse.report import brief, number
from tasc_pipeline.warehouse.report_data import load
from tests.support.window import World, world

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, str, str]]:
    with world(tmp_path_factory.mktemp("figures"), cases=8) as made:
        key = made.approved_window()
        collect.collect(made.home, key, show=lambda _: None)
        publish.publish(made.home, key)
        close.close(made.home, key)
        assess.assess(made.home, key)
        yield made, key, html.unescape(assess.report_path(made.home, key).read_text())


def rows_of(page: str, heading: str) -> list[list[str]]:
    """The cells of the first table after a heading."""
    table = page[page.index(f"<h2>{heading}") :]
    body = table[table.index("<tbody>") : table.index("</tbody>")]
    return [re.findall(r"<td>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", body)]


def test_latencies_of_each_profile_are_those_of_sql(shown: tuple[World, str, str]) -> None:
    made, key, page = shown
    with connect(made.home.root) as session:
        wanted = []
        for metric in ("ttft_ms", "tpot_ms", "e2e_ms"):
            query = (
                f"SELECT profile_id, quantile_cont({metric}, 0.5), quantile_cont({metric}, 0.95) FROM traces "  # noqa: S608 - a name of ours
                "WHERE window_key = ? AND status = 'success' GROUP BY ALL ORDER BY any_value(role) DESC"
            )
            wanted.append(
                [f"{number(p50)} / {number(p95)}" for _, p50, p95 in session.execute(query, [key]).fetchall()]
            )
    table = rows_of(page, "Latency of each profile")
    assert [[row[3], row[5], row[6]] for row in table] == [list(each) for each in zip(*wanted, strict=True)]


def test_tiles_show_the_medians_of_sql_in_three_digits(shown: tuple[World, str, str]) -> None:
    made, key, page = shown
    with connect(made.home.root) as session:
        medians = session.execute(
            "SELECT median(ttft_ms), median(e2e_ms) FROM traces WHERE window_key = ? AND status = 'success' "
            "GROUP BY role ORDER BY role DESC",
            [key],
        ).fetchall()
    for place, name in enumerate(("TTFT, median", "E2E, median")):
        value = re.search(rf'<span>{name}</span><span class="value">(.*?)</span>', page)
        assert value is not None
        assert value[1] == " → ".join(brief(side[place]) for side in medians) + " ms"


def test_states_are_those_of_the_coverage_view(shown: tuple[World, str, str]) -> None:
    made, key, page = shown
    with connect(made.home.root) as session:
        wanted = session.execute(
            "SELECT profile_id, success, failure, sent_unknown, not_sent, not_attempted, planned FROM coverage "
            "WHERE window_key = ? ORDER BY role DESC",
            [key],
        ).fetchall()
    assert rows_of(page, "Failures and unknowns") == [[str(cell) for cell in row] for row in wanted]
    assert sum(row[-1] for row in wanted) == 16


def test_pictures_hold_the_points_of_sql(shown: tuple[World, str, str]) -> None:
    made, key, _ = shown
    with connect(made.home.root) as session:
        data = load(session, key)
        pooled = session.execute(
            "SELECT profile_id, quantile_cont(gap_ns / 1e6, 0.95) FROM token_events WHERE window_key = ? AND gap_ns IS NOT NULL "
            "GROUP BY ALL",
            [key],
        ).fetchall()
        ratios = session.execute(
            "SELECT median(ttft_ratio) FROM paired_deltas WHERE window_key = ? AND both_succeeded", [key]
        ).fetchone()
    assert {curve.profile_id: curve.percentiles[95] for curve in data.itl} == pytest.approx(dict(pooled))
    [ttft] = [curve for (_, metric), curve in data.ratios.items() if metric == "ttft"]
    assert ratios is not None and ttft.percentiles[50] == pytest.approx(ratios[0])
