"""A value or nothing: placeholders, units and noise of vendor tools (gpustat pull 179, nvitop pull 208, dask 5342)."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasc_compute.devices.values import celsius, is_absent, member, noisy_json, number, percent, size, text, watts

PLACEHOLDERS = [
    "[N/A]",
    "N/A",
    "[Not Supported]",
    "[Not Found]",
    "[Unknown Error]",
    "[GPU requires reset]",
    "ERR!",
    "[Insufficient Permissions]",
    "",
]


@pytest.mark.parametrize("placeholder", PLACEHOLDERS)
def test_a_placeholder_is_no_number_and_no_name(placeholder: str) -> None:
    assert number(placeholder) is None
    assert text(placeholder) is None or placeholder == "ERR!"


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("95", 95.0),
        ("95 %", 95.0),
        ("24564 MiB", 24564.0),
        (" 312.45 W", 312.45),
        ("-3", -3.0),
        (7, 7.0),
        (0, 0.0),
        ("0", 0.0),
        ({"value": 12, "unit": "%"}, 12.0),
        ({"value": "N/A", "unit": "%"}, None),
        ({"value": {"value": 1}}, None),
        (True, None),
        (None, None),
        (math.nan, None),
        (math.inf, None),
        (10**400, None),
        ("1e999", None),
        ("12 34", None),
        ([1], None),
        ("0x10", None),
    ],
)
def test_numbers_are_read_from_every_spelling_and_nothing_else(printed: object, expected: float | None) -> None:
    assert number(printed) == expected


def test_values_out_of_range_cannot_be_told() -> None:
    assert (percent("101"), percent("-1"), percent("0"), percent(100)) == (None, None, 0.0, 100.0)
    assert (celsius("0"), celsius("-1"), celsius("151"), celsius("42 C")) == (None, None, None, 42.0)
    assert (watts("-0.1"), watts("1000000"), watts("0")) == (None, None, 0.0)
    assert (size("2", 1024), size("-2"), size("18446744073709551615")) == (2048, None, 18446744073709551616)


def test_only_a_platform_that_has_no_such_value_is_absent() -> None:
    """A reset or an unknown error is a failure to read; it does not make a card share the host's memory."""
    assert [is_absent(word) for word in ("[N/A]", "Not Supported", "[GPU requires reset]", "ERR!", None)] == [
        True,
        True,
        False,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ('{"a": 1}', {"a": 1}),
        ('WARNING: user is not in group [render]\n[{"gpu": 0}]\n', [{"gpu": 0}]),
        ('Warning [123] first\n{"gpu_data": [{"gpu": 0}]} trailing', {"gpu_data": [{"gpu": 0}]}),
        ('[{"gpu": 0}, {"gpu"', {"gpu": 0}),
        ("WARNING: No JSON data to report", None),
        ("", None),
        ("[" * 100_000, None),
        ('{"a": ' + "9" * 5000 + "}", None),
    ],
)
def test_json_is_found_in_noise(output: str, expected: object) -> None:
    assert noisy_json(output) == expected


@given(st.text(alphabet=st.sampled_from('[]{}":,0a\\ \n'), max_size=300))
def test_no_output_breaks_the_reader(output: str) -> None:
    value = noisy_json(output)
    assert value is None or isinstance(value, list | dict)


def test_members_of_anything_are_found_or_none() -> None:
    assert member({"a": {"b": 1}}, "a", "b") == 1
    assert member({"a": [1]}, "a", "b") is None
    assert member(None, "a") is None


def test_names_hold_no_control_characters() -> None:
    assert text("RTX\x1b[31m 4090\n") == "RTX[31m 4090"
