"""Reading the answers of a decision study: one TOML file, flags over it, every missing answer named at once."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from tasc_collector.canonical import canonical_bytes
from tasc_collector.contracts.base import Model, input_error
from tasc_collector.contracts.decision_answers import DecisionAnswers
from tasc_collector.errors import InputError
from tasc_collector.limits import RECORD_MAX_BYTES
from tasc_collector.wire.records import read_bounded
from tasc_pipeline.home.toml_records import parse_toml

_TABLES: Final = ("evaluator", "route_signal", "gates", "cost")
"""Tables whose answers are asked for one by one, also where the whole table is missing."""
_WHERE: Final = "answers"


def read_answers(path: Path | None, flags: Sequence[str]) -> DecisionAnswers:
    """The answers of a file and of flags such as ``gates.maximum_failure_rate=0.02``; a flag wins.

    Args:
        path: a TOML file, or None; a relative name in it is relative to its folder.
        flags: ``name=value``, the value in TOML or a bare word.

    Raises:
        InputError: answers are missing (all of them are named), or one breaks its rule.
    """
    value = _tables(path)
    for flag in flags:
        _set(value, flag)
    for table in _TABLES:
        value.setdefault(table, {})
    where = _WHERE if path is None else path.name
    try:
        answers = DecisionAnswers.model_validate_json(canonical_bytes(value), by_name=True, by_alias=False)
    except ValidationError as error:
        raise _refusal(error, value, where) from None
    return answers.model_copy(update={"left_at_default": tuple(_defaults(answers))})


def _tables(path: Path | None) -> dict[str, Any]:  # Any: a TOML document
    if path is None:
        return {}
    value = parse_toml(read_bounded(path, RECORD_MAX_BYTES), where=path.name)
    evaluator = value.get("evaluator")
    trust = evaluator.get("trust_file") if isinstance(evaluator, dict) else None
    if isinstance(evaluator, dict) and isinstance(trust, str):
        evaluator["trust_file"] = str(path.absolute().parent / trust)
    return value


def _set(value: dict[str, Any], flag: str) -> None:  # Any: a TOML document
    name, equals, text = flag.partition("=")
    *tables, last = name.split(".")
    if not equals or not all(part.isidentifier() for part in (*tables, last)):
        raise InputError(
            "this is no answer",
            where="--answer",
            rule="NAME=VALUE",
            way_out="write it like gates.minimum_mean_score=0.8",
        )
    for table in tables:
        inner = value.setdefault(table, {})
        if not isinstance(inner, dict):
            raise InputError("this is no table", where="--answer", field=name, way_out="correct the name")
        value = inner
    value[last] = toml_value(text)


def toml_value(text: str) -> Any:  # Any: a TOML value
    """The value that a text is in TOML; a text that is none stands for itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _refusal(error: ValidationError, value: dict[str, Any], where: str) -> InputError:  # Any: a TOML document
    problems = error.errors(include_url=False, include_input=False)
    missing = [".".join(map(str, item["loc"])) for item in problems if item["type"] == "missing"]
    if value["cost"] == {}:
        missing += ["cost.champion", "cost.candidate"]
    if not missing:
        return input_error(error, where=where)
    return InputError(
        f"{len(missing)} answers are missing",
        where=where,
        field=missing[0],
        rule=", ".join(missing),
        way_out="write them into one TOML file (examples/decision/answers.toml is one) and name it with --answers, "
        "or give each with --answer NAME=VALUE",
    )


def _defaults(model: Model, prefix: str = "") -> Iterator[str]:
    """Names of the answers that nobody gave."""
    for name in type(model).model_fields:
        item = getattr(model, name)
        if name in ("version", "left_at_default"):
            continue
        if name in model.model_fields_set and isinstance(item, Model):
            yield from _defaults(item, f"{prefix}{name}.")
        elif name not in model.model_fields_set:
            yield f"{prefix}{name}"
