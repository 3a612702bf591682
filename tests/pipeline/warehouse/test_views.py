from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from tasc_collector.errors import InputError
from tasc_pipeline.warehouse import connect
from tasc_pipeline.warehouse.errors import PartCorruptError
from tasc_pipeline.warehouse.manifests import Source
from tasc_pipeline.warehouse.publish import publish
from tasc_pipeline.warehouse.schemas import DECISIONS
from tasc_pipeline.warehouse.tables_assessment import DecisionRow
from tasc_pipeline.warehouse.views import VIEWS, sql_text, view_columns

KEY, SECOND = "w1.r01-0a1b2c3d", "w2.r01-0a1b2c3d"


def test_every_view_answers_on_an_empty_warehouse_with_comments_on_all_columns(house) -> None:
    house.build()
    with connect(house.home) as session:
        for view in VIEWS:
            assert session.table(view).fetchall() == []
            described = session.execute(
                "SELECT column_name, comment FROM duckdb_columns() WHERE table_name = ? ORDER BY column_index", [view]
            ).fetchall()
            assert tuple(described) == view_columns(view)
        comments = session.execute(
            "SELECT view_name FROM duckdb_views() WHERE comment IS NULL AND NOT internal"
        ).fetchall()
        assert comments == []


def test_a_key_that_looks_like_a_date_stays_text_and_prunes_files(house, make_rows) -> None:
    house.publish_traces("2026-11-29", make_rows("2026-11-29"))
    house.publish_traces(KEY, make_rows(KEY))
    house.build()
    with connect(house.home) as session:
        assert session.execute("SELECT DISTINCT window_key FROM traces ORDER BY 1").fetchall() == [
            ("2026-11-29",),
            (KEY,),
        ]
        plan = session.execute(
            "EXPLAIN ANALYZE SELECT sum(ttft_ms) FROM traces WHERE window_key = '2026-11-29'"
        ).fetchall()
        assert "1/2" in plan[0][1]


def test_identities_read_as_the_records_hold_them(house, make_rows) -> None:
    rows = make_rows(cases=1)
    house.publish_traces(KEY, rows)
    house.build()
    with connect(house.home) as session:
        held = session.execute(
            "SELECT trace_id, replicate_id, request_identity FROM traces WHERE role = 'champion'"
        ).fetchone()
    assert held == (rows[0].trace_id, rows[0].replicate_id, rows[0].request_identity)


def test_coverage_adds_up_and_pairs_have_ratios_only_where_both_succeeded(house, make_rows) -> None:
    house.publish_traces(KEY, make_rows(cases=3, failures=1))
    house.build()
    with connect(house.home) as session:
        assert session.execute(
            "SELECT role, planned, success, failure, sent_unknown, not_sent, not_attempted, accepted, coverage "
            "FROM coverage ORDER BY role"
        ).fetchall() == [("candidate", 3, 2, 1, 0, 0, 0, 3, 1.0), ("champion", 3, 3, 0, 0, 0, 0, 3, 1.0)]
        assert session.execute(
            "SELECT case_id, candidate_outcome, both_succeeded, ttft_ratio, e2e_delta_ms, champion_ttft_ms "
            "FROM paired_deltas ORDER BY 1"
        ).fetchall() == [
            ("case-00000", "failure", False, None, None, None),
            ("case-00001", "success", True, 0.5, -500.5, 101.0),
            ("case-00002", "success", True, 0.5, -501.0, 102.0),
        ]


def test_an_end_that_nobody_knows_is_not_covered(house, make_rows) -> None:
    known, *rest = make_rows(cases=2)
    unknown = replace(known, status=None, dispatch_state="sent_unknown")
    house.publish_traces(KEY, [unknown, *rest])
    house.build()
    with connect(house.home) as session:
        found = session.execute("SELECT accepted, sent_unknown, coverage FROM coverage WHERE role = ?", [known.role])
        assert found.fetchall() == [(2, 1, 0.5)]


def test_windows_current_keeps_the_newest_revision(house, window_row) -> None:
    for revision in (1, 2, 3):
        house.publish_window(window_row(f"w1.r{revision:02d}-00000000", revision=revision))
    house.publish_window(window_row("w2.r01-00000000", window_id="w2"))
    house.build()
    with connect(house.home) as session:
        assert session.execute("SELECT window_key FROM windows_current ORDER BY 1").fetchall() == [
            ("w1.r03-00000000",),
            ("w2.r01-00000000",),
        ]


def test_lineage_joins_a_study_with_its_fork(house, window_row) -> None:
    first, second = "first.r01-00000000", "second.r01-00000000"
    house.publish_window(replace(window_row(first), study_id="swap", lineage_id="swap"))
    fork = {"study_id": "swap-2", "predecessor_study_id": "swap", "lineage_id": "swap"}
    later = window_row(second, window_id="w2").event_time_start + 1
    house.publish_window(replace(window_row(second, window_id="w2"), **fork, event_time_start=later))
    house.publish_window(window_row("other.r01-00000000", window_id="w3"))
    told = {"study_kind": "comparison", "sentence": "So it is.", "as_of": later, "report_digest": "sha256:" + "4" * 64}
    for key, study, result in ((first, "swap", "undecided"), (second, "swap-2", "no-worse")):
        row = DecisionRow(window_key=key, study_id=study, candidate_profile_id="fast", result=result, **told)
        publish(house.root, "decisions", key, DECISIONS.from_rows([row]), sign=house.signer, clock=house.clock)
    house.build()
    with connect(house.home) as session:
        found = session.execute(
            "SELECT study_id, predecessor_study_id, window_key, candidate_profile_id, result FROM lineage "
            "WHERE lineage_id = 'swap' ORDER BY event_time_start"
        ).fetchall()
        bare = session.execute("SELECT window_key, result FROM lineage WHERE lineage_id = 'study-1'").fetchall()
    assert found == [
        ("swap", None, first, "fast", "undecided"),
        ("swap-2", "swap", second, "fast", "no-worse"),
    ]
    assert bare == [("other.r01-00000000", None)], "a window that was not assessed is there without a result"


def test_timestamps_are_utc_whatever_the_session_thinks(house, make_rows) -> None:
    house.publish_traces(KEY, make_rows(cases=1))
    house.build()
    with connect(house.home) as session:
        assert session.execute("SELECT DISTINCT start_hour::VARCHAR FROM traces").fetchall() == [
            ("2026-11-29 12:00:00+00",)
        ]


def test_a_copied_folder_works_and_the_database_file_is_only_read(house, make_rows, tmp_path: Path) -> None:
    house.publish_traces(KEY, make_rows(cases=2))
    house.build()
    copy = tmp_path / "somewhere else"
    shutil.copytree(house.home, copy)
    shutil.rmtree(house.home)
    with connect(copy) as session:
        assert session.execute("SELECT count(*) FROM traces").fetchall() == [(4,)]
    script = (
        "import duckdb; session = duckdb.connect('warehouse.duckdb', read_only=True)\n"
        "print(session.execute('SELECT count(*) FROM traces').fetchone()[0])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=copy, capture_output=True, text=True, check=True, timeout=120
    )
    assert ran.stdout == "4\n"


def test_an_open_database_file_blocks_no_publication(house, make_rows) -> None:
    house.publish_traces(KEY, make_rows(cases=1))
    house.build()
    with duckdb.connect(str(house.home / "warehouse.duckdb"), config={"file_search_path": str(house.home)}) as analyst:
        assert analyst.execute("SELECT count(*) FROM traces").fetchall() == [(2,)]
        house.publish_traces(SECOND, make_rows(SECOND, cases=1))
        house.build()
        assert analyst.execute("SELECT count(*) FROM traces").fetchall() == [(2,)]
    with connect(house.home) as later:
        assert later.execute("SELECT count(*) FROM traces").fetchall() == [(4,)]


def test_the_shell_opens_tasc_sql_from_the_state_folder(house, make_rows) -> None:
    shell = shutil.which("duckdb", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if shell is None:
        pytest.skip("the DuckDB shell is not installed")
    house.publish_traces(KEY, make_rows(cases=1))
    house.build()
    ran = subprocess.run(
        [shell, "-init", "tasc.sql", "-csv", "-c", "SELECT count(*) AS n FROM traces"],
        cwd=house.home,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert ran.stdout.split() == ["n", "2"]


def test_a_deleted_part_is_named_and_the_old_views_still_stand(house, make_rows) -> None:
    house.publish_traces(KEY, make_rows())
    house.build()
    before = (house.home / "tasc.sql").read_bytes()
    lost = house.publish_traces(SECOND, make_rows(SECOND))
    lost.unlink()
    with pytest.raises(PartCorruptError, match=f"traces/window_key={SECOND}/{lost.name}: a published part is missing"):
        house.build()
    assert (house.home / "tasc.sql").read_bytes() == before


def test_a_part_of_a_newer_schema_is_refused_and_an_older_one_read_by_name(tmp_path: Path) -> None:
    path = tmp_path / "warehouse" / "traces" / f"window_key={KEY}" / "part-00000000.parquet"
    newer = Source(path, "tasc-traces-v2", 1, "0" * 64, KEY)
    with pytest.raises(InputError, match=r"this program knows tasc-traces-v1.*upgrade tasc"):
        sql_text({"traces": [newer]}, tmp_path)
    older = Source(path, "tasc-traces-v0", 1, "0" * 64, KEY)
    assert "union_by_name = true" in sql_text({"traces": [older]}, tmp_path)


def test_no_warehouse_is_one_clear_message(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no warehouse here -> name the state folder with TASC_HOME"):
        connect(tmp_path)
