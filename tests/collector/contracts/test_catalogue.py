"""The catalogue lists every record class that exists, once, and finds it by its schema id."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import pytest

import tasc_collector.contracts
from tasc_collector.contracts.base import Record
from tasc_collector.contracts.catalogue import CATALOGUE, RECORD_CLASSES, record_class, schema_id
from tasc_collector.contracts.envelope import TraceEnvelope
from tasc_collector.errors import InputError


def _subclasses(cls: type[Record]) -> Iterator[type[Record]]:
    for sub in cls.__subclasses__():
        yield sub
        yield from _subclasses(sub)


def _every_record_class() -> set[type[Record]]:
    for module in pkgutil.iter_modules(tasc_collector.contracts.__path__):
        importlib.import_module(f"tasc_collector.contracts.{module.name}")
    return {
        cls
        for cls in _subclasses(Record)
        if cls.__module__.startswith("tasc_collector.contracts.")
        and not cls.__name__.startswith("_")
        and schema_id(cls)
    }


def test_every_record_class_is_listed_once() -> None:
    assert set(RECORD_CLASSES) == _every_record_class()
    assert len(set(RECORD_CLASSES)) == len(RECORD_CLASSES) == len(CATALOGUE)


def test_every_record_class_has_a_digest_domain_of_its_own() -> None:
    assert all(cls.domain.startswith("tasc/") for cls in RECORD_CLASSES)
    shapes_of_one = [cls.domain for cls in RECORD_CLASSES if cls.__name__ != "HeldExperiment"]
    assert len(set(shapes_of_one)) == len(shapes_of_one)


def test_a_record_is_found_by_its_id() -> None:
    assert record_class({"version": "tasc-trace-envelope-v2"}) is TraceEnvelope
    assert schema_id(TraceEnvelope) == "tasc-trace-envelope-v2"


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        ({}, "does not say what it is"),
        ({"version": 2}, "does not say"),
        ({"version": "tasc-unknown-v9"}, "unknown schema id"),
    ],
)
def test_an_unknown_record_is_refused(value: dict[str, object], rule: str) -> None:
    with pytest.raises(InputError, match=rule) as caught:
        record_class(value, where="file.json")
    assert caught.value.where == "file.json"
    assert caught.value.way_out
