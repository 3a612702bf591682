from __future__ import annotations

import dataclasses

import pyarrow as pa
import pytest

from tasc_collector.errors import InputError
from tasc_pipeline.warehouse.columns import identity_bytes
from tasc_pipeline.warehouse.schemas import TABLES, TRACES, get_table


def test_every_column_has_a_description_and_a_unit_where_its_name_has_one() -> None:
    units = {"_ms": "ms", "_ns": "ns", "_usd": "USD", "_bytes": "bytes"}
    for table in TABLES.values():
        for column in table.columns:
            assert column.description.endswith("."), (table.name, column.name)
            for ending, unit in units.items():
                if column.name.endswith(ending):
                    assert column.unit == unit, (table.name, column.name)


def test_arrow_schema_carries_id_units_and_descriptions() -> None:
    field = TRACES.schema.field("ttft_ms")
    assert TRACES.schema.metadata[b"tasc.schema_id"] == b"tasc-traces-v1"
    assert field.metadata == {b"description": b"Time to first token.", b"unit": b"ms"}
    assert field.type == pa.float64()
    assert field.nullable
    assert not TRACES.schema.field("case_id").nullable
    assert TRACES.schema.field("started_at").type == pa.timestamp("ms", tz="UTC")
    assert TRACES.schema.field("trace_id").type == pa.binary(32)


def test_null_stays_null_and_is_refused_where_a_value_is_required(make_rows) -> None:
    row = make_rows(cases=1)[0]
    table = TRACES.from_rows([row])
    assert table.column("tls_ms").to_pylist() == [None]
    assert table.column("cost_usd").to_pylist() == [None]
    with pytest.raises(InputError, match="traces: case_id: null where a value is required"):
        TRACES.from_rows([dataclasses.replace(row, case_id=None)])


def test_a_value_of_another_type_is_refused_without_being_shown(make_rows) -> None:
    row = dataclasses.replace(make_rows(cases=1)[0], output_tokens="secret-words")
    with pytest.raises(InputError) as refused:
        TRACES.from_rows([row])
    assert "output_tokens" in str(refused.value)
    assert "secret-words" not in str(refused.value)


def test_identities_are_32_bytes_of_their_own_prefix() -> None:
    assert identity_bytes("trace-" + "0a" * 32, prefix="trace-") == b"\n" * 32
    for wrong in (
        "0a" * 32,
        "trace-" + "0a" * 31,
        "attempt-" + "0a" * 32,
        "trace-" + "zz" * 32,
        "trace-" + " 0a" * 21 + " ",
    ):
        with pytest.raises(InputError, match="not a 32-byte identity"):
            identity_bytes(wrong, prefix="trace-")


def test_an_unknown_table_is_refused_with_the_names_of_all() -> None:
    with pytest.raises(InputError, match="use one of traces, attempts, token_events"):
        get_table("trace")
