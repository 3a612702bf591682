"""Scalar types: what is inside and just outside each."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from tasc_collector.contracts import scalars


def _accepts(kind: Any, value: object) -> bool:
    try:
        TypeAdapter(kind).validate_python(value, strict=True)
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize("text", ["a", "a" * 128, "a.b_c-d", "0", "a..b"])
def test_a_slug(text: str) -> None:
    assert _accepts(scalars.Slug, text)


@pytest.mark.parametrize("text", ["", "a" * 129, "A", "-a", "a-", "a b", "a\n", "é"])
def test_no_slug(text: str) -> None:
    assert not _accepts(scalars.Slug, text)


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-31T09:30:00.000",
        "2026-01-31T09:30:00Z",
        "2026-01-31T09:30:00.0000Z",
        "2026-01-31 09:30:00.000Z",
        "2026-01-31T09:30:00.000+00:00",
        "2026-02-30T00:00:00.000Z",
        "2026-01-31T24:00:00.000Z",
        "2026-01-31T23:59:60.000Z",
        "2026-01-31T09:30:00.000Z\n",
        "٢٠٢٦-01-31T09:30:00.000Z",
        "0000-01-01T00:00:00.000Z",
    ],
)
def test_no_timestamp(text: str) -> None:
    assert not _accepts(scalars.Timestamp, text)


def test_a_timestamp_is_exact_in_milliseconds() -> None:
    text = "2026-01-31T09:30:00.007Z"
    assert _accepts(scalars.Timestamp, text)
    assert scalars.timestamp_ms(text) == 1_769_851_800_007
    assert scalars.timestamp_of_ms(1_769_851_800_007) == text
    assert scalars.format_timestamp(datetime(2026, 1, 31, 9, 30, 0, 7_999, UTC)) == text


@pytest.mark.parametrize(
    ("text", "fits"), [("x" * 256, True), ("x" * 257, False), ("😀" * 128, True), ("😀" * 129, False)]
)
def test_text_is_measured_in_utf16_units(text: str, fits: bool) -> None:
    assert _accepts(scalars.Text, text) is fits


@pytest.mark.parametrize("text", ["", " a", "a ", "\ufeffa", "a\n", "\u00a0a"])
def test_text_has_no_outer_white_space(text: str) -> None:
    assert not _accepts(scalars.Text, text)


@pytest.mark.parametrize(
    "text",
    ["Bearer abc", "basic dXNlcg==", "api_key=1", "password: x", "SECRET =", "sk-abcdefgh", "x authorization: y"],
)
def test_trace_text_refuses_what_looks_like_a_credential(text: str) -> None:
    assert not _accepts(scalars.TraceText, text)


@pytest.mark.parametrize("text", ["org/secret-santa-7b", "basic-llm", "bearer", "sk-abc", "password-strength-model"])
def test_trace_text_allows_models_with_such_words(text: str) -> None:
    assert _accepts(scalars.TraceText, text)


@pytest.mark.parametrize("text", ["sha256:" + "a" * 63, "sha256:" + "A" * 64, "a" * 64, "sha256:" + "a" * 64 + "\n"])
def test_no_digest(text: str) -> None:
    assert not _accepts(scalars.Digest, text)


@pytest.mark.parametrize("value", [-1, 2**53, 1.0, True, "1"])
def test_no_count(value: object) -> None:
    assert not _accepts(scalars.Count, value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "1", True])
def test_no_finite_number(value: object) -> None:
    assert not _accepts(scalars.Finite, value)


def test_an_opaque_id_hides_no_path() -> None:
    assert _accepts(scalars.OpaqueId, "server-a")
    assert not _accepts(scalars.OpaqueId, "a..b")
