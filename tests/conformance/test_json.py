"""JSON against JSONTestSuite and the strict profile's verdicts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tasc_collector.errors import LimitExceeded, WireError
from tasc_collector.wire.json import JsonLimits, parse_json

VECTORS = Path(__file__).resolve().parents[3] / "shared" / "vectors" / "json"
SUITE = VECTORS / "JSONTestSuite" / "test_parsing"
FILES = sorted(SUITE.glob("*.json")) if SUITE.is_dir() else []
STRICT = JsonLimits(max_depth=64)
TWICE = {"y_object_duplicated_key.json", "y_object_duplicated_key_and_value.json"}

needs_vectors = pytest.mark.skipif(not FILES, reason="the JSON vectors are not beside this repository")


def _verdict(data: bytes) -> str:
    try:
        parse_json(data, STRICT)
    except WireError as error:
        assert error.code in str(error)
        assert error.way_out
        assert error.__context__ is None  # a parser's error holds the whole text
        return "reject"
    return "accept"


def _strict_verdicts() -> dict[str, str]:
    path = VECTORS / "strict_profile.json"
    return json.loads(path.read_bytes())["verdicts"] if path.is_file() else {}


def _present(verdicts: dict[str, str]) -> dict[str, str]:
    """Verdicts of the files that are here."""
    names = {path.name for path in FILES}
    return {name: verdict for name, verdict in verdicts.items() if name in names}


def _own_cases() -> list[dict[str, str]]:
    path = VECTORS / "own_strict_cases.json"
    return json.loads(path.read_bytes())["cases"] if path.is_file() else []


@needs_vectors
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_suite_file(path: Path) -> None:
    data = path.read_bytes()
    if path.name.startswith("n_"):
        assert _verdict(data) == "reject"
    elif path.name.startswith("y_"):
        assert _verdict(data) == ("reject" if path.name in TWICE else "accept")
        if path.name not in TWICE:
            assert parse_json(data, STRICT) == json.loads(data)
    else:
        assert _verdict(data) == _strict_verdicts().get(path.name, "reject")


@needs_vectors
@pytest.mark.parametrize(("name", "expected"), sorted(_present(_strict_verdicts()).items()))
def test_strict_profile(name: str, expected: str) -> None:
    assert _verdict((SUITE / name).read_bytes()) == expected


@needs_vectors
@pytest.mark.parametrize("case", _own_cases(), ids=lambda case: case["id"])
def test_own_case(case: dict[str, str]) -> None:
    assert _verdict(bytes.fromhex(case["hex"])) == case["expect"]


@pytest.mark.parametrize("opener", [b"[", b'{"":', b'[{"a":', b"[[],"])
def test_a_mebibyte_of_openers_is_a_depth_limit(opener: bytes) -> None:
    data = (opener * (1024 * 1024 // len(opener) + 1))[: 1024 * 1024]
    with pytest.raises(LimitExceeded) as refused:
        parse_json(data)
    assert refused.value.code == "depth-limit"
