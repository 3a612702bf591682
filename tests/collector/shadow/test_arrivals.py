from __future__ import annotations

import pytest

from tasc_collector.errors import InputError
from tasc_collector.shadow.arrivals import arrivals_digest, read_arrivals


def test_a_trace_becomes_offsets_from_its_first_arrival() -> None:
    assert read_arrivals([b"10.5\n", b"\n", b"10.5\r\n", b"12\n"], where="arrivals.txt") == (0.0, 0.0, 1.5)


def test_a_float_as_programs_print_it_is_a_time() -> None:
    times = [0.1 + 0.2, 1 / 3, 2 / 3 + 1e-16, 5e-7]
    offsets = read_arrivals([repr(time).encode() for time in sorted(times)], where="arrivals.txt")
    assert offsets == tuple(time - 5e-7 for time in sorted(times))


@pytest.mark.parametrize(
    "lines",
    [
        [b"1", b"0.5"],
        [b"x"],
        [b"nan"],
        [b"inf"],
        [b"1e999"],
        [b"-1"],
        [b"\xff"],
        [b"1_0"],
        [b"1 2"],
        [b"0x1"],
        [b"1."],
        [b"1" * 20],
    ],
)
def test_a_line_that_is_no_time_of_arrival_is_named(lines: list[bytes]) -> None:
    with pytest.raises(InputError, match=rf"arrivals.txt:{len(lines)}"):
        read_arrivals(lines, where="arrivals.txt")


def test_the_digest_is_over_the_numbers() -> None:
    assert arrivals_digest(read_arrivals([b"1.0", b"2"], where="a")) == arrivals_digest(
        read_arrivals([b"1", b"2.000"], where="a")
    )
    assert arrivals_digest((0.0, 1.0)) != arrivals_digest((0.0, 1.5))
