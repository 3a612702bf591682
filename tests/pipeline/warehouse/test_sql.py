from __future__ import annotations

import io
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from tasc_collector.errors import InputError
from tasc_pipeline.warehouse import connect, sql
from tasc_pipeline.warehouse.errors import WarehouseError
from tasc_pipeline.warehouse.side_by_side import load_pair, render_pair
from tests.support import sample_warehouse

MORNING, NOON = sample_warehouse.KEYS


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory):
    home = tmp_path_factory.mktemp("state")
    sample_warehouse.build(home)
    with connect(home) as opened:
        yield opened


def rendered(renderable: object) -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(renderable)
    return console.file.getvalue()


def test_every_named_question_has_a_title_and_an_answer(session) -> None:
    asked = sql.questions()
    assert len(asked) == 12
    for question in asked:
        assert question.title, question.name
        assert sql.ask(session, f"@{question.name}").fetchall(), question.name


def test_a_question_can_be_about_one_window(session) -> None:
    both = sql.ask(session, "@coverage").fetchall()
    one = sql.ask(session, "@coverage", window_key=NOON).fetchall()
    assert [row[0] for row in both] == [MORNING, MORNING, NOON, NOON]
    assert [row[:8] for row in one] == [
        (NOON, "vllm-0-26-0", 80, 79, 0, 1, 0, 0),
        (NOON, "vllm-0-33-0", 80, 77, 2, 0, 1, 0),
    ]
    assert sql.ask(session, "@coverage").fetchall() == both


def test_figures_of_questions_equal_plain_sql_on_the_rows(session) -> None:
    (row,) = [row for row in sql.ask(session, "@latency", window_key=NOON).fetchall() if row[1] == "vllm-0-33-0"]
    times = sorted(
        value
        for (value,) in session.execute(
            "SELECT ttft_ms FROM traces WHERE window_key = ? AND profile_id = 'vllm-0-33-0' AND status = 'success'",
            [NOON],
        ).fetchall()
    )
    assert row[2] == len(times) == 77
    assert row[3] == times[38]


def test_per_call_and_pooled_percentiles_are_different_questions(session) -> None:
    pooled = sql.ask(session, "@itl-pooled", window_key=NOON).fetchall()
    assert [row[2] for row in pooled] == [
        session.execute(
            "SELECT sum(token_event_count - 1)::BIGINT FROM traces "
            "WHERE window_key = ? AND role = ? AND status = 'success'",
            [NOON, role],
        ).fetchone()[0]
        for role in ("champion", "candidate")
    ]


def test_length_buckets_are_in_numeric_order(session) -> None:
    rows = sql.ask(session, "@itl-by-length-and-hour", window_key=NOON).fetchall()
    assert [row[1] for row in rows][::2] == ["chars-64-127", "chars-128-255", "chars-256-511", "chars-512-1023"]


def test_an_unknown_question_and_a_wrong_query_say_what_there_is(session) -> None:
    with pytest.raises(InputError, match="@latenzy: there is no such question -> ask one of @collector-delay, @cost"):
        sql.ask(session, "@latenzy")
    with pytest.raises(InputError, match=r"Parser Error.*duckdb_columns"):
        sql.ask(session, "selec 1")


def test_a_table_shows_null_as_null_and_says_when_there_are_more_rows(session) -> None:
    table, more = sql.terminal_table(sql.ask(session, "SELECT NULL AS nothing, 0.125::DOUBLE AS part, 'x' AS word"))
    assert not more
    assert rendered(table).split("\n")[2].split() == ["null", "│", "0.125", "│", "x"]
    table, more = sql.terminal_table(sql.ask(session, "FROM range(1000)"))
    assert more
    assert table.row_count == 200


def test_csv_keeps_every_digit_and_utc(session) -> None:
    stream = io.StringIO()
    query = "SELECT 0.1::DOUBLE + 0.2::DOUBLE AS a, NULL AS b, to_timestamp(1795953600.25) AS c, 'x,y' AS d"
    assert sql.write_csv(sql.ask(session, query), stream) == 1
    assert stream.getvalue() == 'a,b,c,d\n0.30000000000000004,,2026-11-29T12:00:00.250Z,"x,y"\n'


def test_parquet_export_holds_the_rows_and_leaves_no_temporary(session, tmp_path: Path) -> None:
    target = tmp_path / "it's.parquet"
    assert sql.write_parquet(session, "@coverage", target) == 4
    assert pq.read_table(target).column("planned").to_pylist() == [80, 80, 80, 80]
    assert [path.name for path in tmp_path.iterdir()] == ["it's.parquet"]
    with pytest.raises(InputError, match="Parser Error"):
        sql.write_parquet(session, "nonsense", target)
    with pytest.raises(WarehouseError, match="choose a folder that exists"):
        sql.write_parquet(session, "FROM traces", tmp_path / "missing" / "o.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["it's.parquet"]


def test_a_pair_is_shown_side_by_side_with_its_figures(session) -> None:
    sides = load_pair(session, NOON, "case-00003", replicate=1)
    assert [side.profile_id for side in sides] == ["vllm-0-26-0", "vllm-0-33-0"]
    assert [side.outcome for side in sides] == ["success", "timeout"]
    assert (len(sides[0].events), len(sides[1].events)) == (27, 0)
    text = rendered(render_pair(sides))
    assert "vllm-0-26-0: at ms" in text
    assert text.count("█") > 27
    few = rendered(render_pair(sides, limit=5))
    assert "22 more events: tasc show ... --all" in few


def test_an_unknown_case_or_window_names_some_that_exist(session) -> None:
    with pytest.raises(
        InputError, match="no replicate 0 of this case -> choose a case such as case-00000, case-00001, case-00002"
    ):
        load_pair(session, NOON, "case-77777")
    with pytest.raises(InputError, match=f"nothing is published for this window -> choose one of {NOON}, {MORNING}"):
        load_pair(session, "w9.r01-00000000", "case-00000")
