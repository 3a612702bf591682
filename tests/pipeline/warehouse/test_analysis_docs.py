from __future__ import annotations

import re
from pathlib import Path

from tasc_pipeline.warehouse import connect, sql
from tasc_pipeline.warehouse.views import VIEWS, view_columns
from tests.support import analysis_docs, sample_warehouse

HINT = "run: python -m tests.support.analysis_docs"


def test_the_analyst_page_shows_every_question_with_its_sql_and_its_result(tmp_path: Path) -> None:
    sample_warehouse.build(tmp_path)
    with connect(tmp_path) as session:
        page = analysis_docs.analysis_page(session)
    assert page == (analysis_docs.DOCS / "analysis.md").read_text(), HINT
    assert sorted(analysis_docs.ORDER) == [question.name for question in sql.questions()]


def test_the_operators_incident_query_prints_what_the_guide_shows(tmp_path: Path) -> None:
    page = (analysis_docs.DOCS / "operators-guide.md").read_text()
    [query] = re.findall(r'\$ tasc sql "(SELECT .*sent_unknown.*)"', page)
    shown = re.findall(r"^\| (.+) \|$", page.split("The first prints", 1)[1].split("\n\n")[1], flags=re.MULTILINE)
    names, _, *rows = (tuple(line.split(" | ")) for line in shown)
    sample_warehouse.build(tmp_path)
    with connect(tmp_path) as session:
        result = sql.ask(session, query)
        assert tuple(column for column, _ in sql.column_types(result)) == names
        assert [tuple(map(str, row)) for row in result.fetchall()] == rows
    assert len(rows) == 2


def test_every_column_of_every_view_is_in_the_tables_page() -> None:
    page = (analysis_docs.DOCS / "tables.md").read_text()
    assert page == analysis_docs.tables_page(), HINT
    sections = {part.split("\n", 1)[0]: part for part in page.split("\n## ")[1:]}
    assert tuple(sections) == VIEWS
    for view in VIEWS:
        for name, _ in view_columns(view):
            assert f"| `{name}` |" in sections[view], (view, name)
