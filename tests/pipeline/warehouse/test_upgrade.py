"""A state folder of an older version: views are made again, and what cannot be drawn says how."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from tasc_collector.errors import InputError
from tasc_pipeline.warehouse.database import SQL_FILE, connect
from tasc_pipeline.warehouse.schemas import WINDOWS
from tasc_pipeline.warehouse.views import SCHEMA_PART
from tasc_pipeline.warehouse.window_report import render_window
from tests.support import sample_warehouse


def test_a_table_that_gained_a_column_answers_with_it_after_the_views_are_made_again(house) -> None:
    house.build()
    path = house.root / "windows" / SCHEMA_PART
    last = WINDOWS.schema.names[-1]
    pq.write_table(pq.read_table(path).drop_columns([last]), path)
    house.build()
    assert pq.read_schema(path).names == WINDOWS.schema.names
    with connect(house.home) as session:
        assert session.execute(f"SELECT {last} FROM windows").fetchall() == []  # noqa: S608 - a name of ours


def test_a_report_on_views_of_an_older_version_says_how_to_make_them_again(house) -> None:
    house.build()
    sql = house.home / SQL_FILE
    older = (
        sql.read_text()
        .replace("VIEW token_events", "VIEW events_of_tokens")
        .replace("COLUMN token_events", "COLUMN events_of_tokens")
    )
    sql.write_text(older.split("CREATE OR REPLACE VIEW coverage")[0])
    with pytest.raises(InputError, match="older version of this program -> make them again with: tasc init"):
        render_window(house.home, sample_warehouse.assessment("noon.r01-00000000"))
