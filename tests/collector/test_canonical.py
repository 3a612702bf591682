"""RFC 8785 against published documents and numbers, and the limits of what has a canonical form."""

from __future__ import annotations

import gzip
import json
import math
import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from tasc_collector.canonical import MAX_SAFE_INTEGER, JsonValue, canonical_bytes, digest, digest_int, utf16_key
from tasc_collector.errors import InputError

VECTORS = Path(__file__).resolve().parents[3] / "shared" / "vectors" / "jcs"
DOCUMENTS = sorted((VECTORS / "cyberphone" / "testdata" / "input").glob("*.json"))


@pytest.mark.skipif(not DOCUMENTS, reason="the JCS vectors are not beside this repository")
@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_published_document(path: Path) -> None:
    expected = bytes.fromhex((path.parents[1] / "outhex" / f"{path.stem}.txt").read_text())
    assert canonical_bytes(json.loads(path.read_bytes())) == expected


def _numbers(path: Path) -> Iterator[tuple[float, str]]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt") as lines:
        for line in lines:
            bits, expected = line.strip().split(",")
            yield struct.unpack(">d", bytes.fromhex(bits.rjust(16, "0")))[0], expected


@pytest.mark.parametrize("name", ["es6numbers_10000.txt", "es6numbers_100000.txt.gz"])
def test_published_numbers(name: str) -> None:
    path = VECTORS / name
    if not path.is_file():
        pytest.skip(f"{name} is not among the vectors")
    wrong = [(number, text) for number, text in _numbers(path) if canonical_bytes(number) != text.encode()]
    assert wrong == []


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1e21, b"1e+21"),
        (1e-7, b"1e-7"),
        (-0.0, b"0"),
        (4.50, b"4.5"),
        (1.0, b"1"),
        (MAX_SAFE_INTEGER, b"9007199254740991"),
        ("\u2028\x7f\u00e9", '"\u2028\x7f\u00e9"'.encode()),
        ('\b\t\n\f\r\x1f"\\', b'"\\b\\t\\n\\f\\r\\u001f\\"\\\\"'),
        ({"b": 1, "a": [None, True]}, b'{"a":[null,true],"b":1}'),
    ],
)
def test_form_written_by_hand(value: object, expected: bytes) -> None:
    assert canonical_bytes(value) == expected  # type: ignore[arg-type]


def test_keys_sort_by_utf16_unit_not_by_code_point() -> None:
    value = {"\ue000": 1, "\U0001f600": 2, "a": 3}
    assert canonical_bytes(value) == '{"a":3,"\U0001f600":2,"\ue000":1}'.encode()
    assert sorted(value, key=utf16_key) == ["a", "\U0001f600", "\ue000"]


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        MAX_SAFE_INTEGER + 1,
        -MAX_SAFE_INTEGER - 1,
        "\ud800",
        {1: 2},
        b"x",
        {"a": {"b": 2**60}},
    ],
    ids=["nan", "infinity", "too-large", "too-small", "half-surrogate", "key-no-text", "bytes", "nested-too-large"],
)
def test_what_has_no_canonical_form_is_refused(value: object) -> None:
    with pytest.raises(InputError, match="no canonical form"):
        canonical_bytes(value)  # type: ignore[arg-type]


def test_deep_nesting_is_refused_and_does_not_crash() -> None:
    value: object = 1
    for _ in range(100_000):
        value = [value]
    with pytest.raises(InputError):
        canonical_bytes(value)  # type: ignore[arg-type]


def test_digest_is_domain_separated_and_reduces_exactly() -> None:
    value = {
        "algorithm": "tasc-seeded-sha256-case-replicate-basis-points-v1",
        "caseId": "case-1",
        "replicateId": "replicate-0",
        "seed": "support-routing-shadow-2",
    }
    domain = "tasc/seeded-sha256-case-replicate-basis-points/v1"
    assert digest(domain, value) == "sha256:9d65698377545936aabeb42efe95375f31feb19f005732ffb54458867baf8da1"
    assert digest_int(domain, value) % 10_000 == 5841
    assert digest("tasc/another/v1", value) != digest(domain, value)


def test_the_fast_form_of_fractions_is_the_published_one() -> None:
    generator = random.Random(20260731)
    numbers = [generator.choice((1, -1)) * 10 ** generator.uniform(-4, 16) for _ in range(5_000)]
    numbers += [round(number, generator.randint(0, 6)) for number in numbers]
    wrong = [number for number in numbers if canonical_bytes({"n": [number]}) != rfc8785.dumps({"n": [number]})]
    assert wrong == []


FLOATS = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(
    [0.0, -0.0, 1.0, -2.0, 1e15, 2.0**53, 1e20, 1e21, 1e-3, 1.65e-05, 9.99e-07, 5e-324, 1.7976931348623157e308]
)
VALUES = st.recursive(
    FLOATS | st.integers(-(2**53) + 1, 2**53 - 1) | st.booleans() | st.none() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_the_fast_form_of_a_value_with_any_float_is_the_careful_one(value: JsonValue) -> None:
    assert canonical_bytes(value) == rfc8785.dumps(value)


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
def test_a_number_that_is_not_finite_is_refused_beside_floats_that_are(number: float) -> None:
    with pytest.raises(InputError, match="no canonical form"):
        canonical_bytes({"a": 1.0, "b": [number]})
