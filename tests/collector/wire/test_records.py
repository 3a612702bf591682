"""Records from bytes and files: bounds, links, places and fields in messages."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tasc_collector.contracts.context import AssessmentContext
from tasc_collector.contracts.http_limits import HttpLimits
from tasc_collector.errors import DigestMismatch, InputError
from tasc_collector.wire.records import read_bounded, read_lines, read_ndjson_records, read_record, read_record_file

D = "sha256:" + "1" * 64
CONTEXT = (
    b'{"version":"tasc-assessment-context-v2","asOf":"2026-07-22T00:00:00.000Z",'
    b'"operatorTrustPolicySnapshotDigest":"'
    + D.encode()
    + b'","evaluatorRevocationSnapshotDigest":"'
    + D.encode()
    + b'"}'
)


def test_a_record_keeps_the_value_that_was_read() -> None:
    parsed = read_record(HttpLimits, b'{"deadlineMs": 10000.0}')
    assert parsed.value == {"deadlineMs": 10000.0}
    assert parsed.record.deadline_ms == 10_000
    assert parsed.record.max_response_headers == 64


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (b'{"deadlineMs":1,"deadlineMs":2}', "duplicate-key"),
        (b'{"deadlineMs":NaN}', "invalid-json"),
        (b"\xef\xbb\xbf{}", "utf8-bom"),
        (b'{"deadlineMs":1}x', "invalid-json"),
        (b"[" * 100 + b"]" * 100, "depth-limit"),
    ],
)
def test_bytes_that_are_no_strict_json_are_refused(data: bytes, rule: str) -> None:
    with pytest.raises(InputError) as caught:
        read_record(HttpLimits, data, where="limits.json")
    assert caught.value.rule == rule
    assert str(caught.value).startswith("limits.json: ")
    assert caught.value.way_out


@pytest.mark.parametrize("data", [b"[]", b"1", b'"x"', b"null"])
def test_a_record_is_an_object(data: bytes) -> None:
    with pytest.raises(InputError, match="expected a JSON object"):
        read_record(HttpLimits, data)


def test_python_names_are_no_json_names() -> None:
    with pytest.raises(InputError, match="unknown field") as caught:
        read_record(HttpLimits, b'{"deadline_ms":1}')
    assert caught.value.field == "deadline_ms"


def test_an_own_digest_is_computed_or_checked() -> None:
    digest = read_record(AssessmentContext, CONTEXT).record.context_digest
    assert read_record(AssessmentContext, CONTEXT[:-1] + b',"contextDigest":"' + digest.encode() + b'"}')
    with pytest.raises(DigestMismatch) as caught:
        read_record(AssessmentContext, CONTEXT[:-1] + b',"contextDigest":"' + D.encode() + b'"}')
    assert caught.value.field == "contextDigest"


def test_a_file_is_read_and_named(tmp_path: Path) -> None:
    path = tmp_path / "limits.json"
    path.write_bytes(b'{"deadlineMs":5}')
    assert read_record_file(HttpLimits, path).record.deadline_ms == 5
    path.write_bytes(b'{"deadlineMs":0}')
    with pytest.raises(InputError, match=r"^limits\.json: deadlineMs: "):
        read_record_file(HttpLimits, path)


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file -> "):
        read_record_file(HttpLimits, tmp_path / "none.json")


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_bytes(b"{}")
    (tmp_path / "link.json").symlink_to(tmp_path / "real.json")
    with pytest.raises(InputError, match="is a symbolic link"):
        read_record_file(HttpLimits, tmp_path / "link.json")


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_only_regular_files_are_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / kind
    path.mkdir() if kind == "folder" else os.mkfifo(path)
    with pytest.raises(InputError, match="not a regular file"):
        read_record_file(HttpLimits, path)


def test_a_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(b"x" * 11)
    assert len(read_bounded(path, 11)) == 11
    with pytest.raises(InputError, match="larger than 10 bytes"):
        read_bounded(path, 10)


def test_lines_are_records_and_a_bad_one_is_named(tmp_path: Path) -> None:
    path = tmp_path / "limits.ndjson"
    path.write_bytes(b'{"deadlineMs":1}\n{"deadlineMs":2}')
    assert [parsed.record.deadline_ms for parsed in read_ndjson_records(HttpLimits, path)] == [1, 2]
    path.write_bytes(b'{"deadlineMs":1}\n{"deadlineMs":"2"}\n')
    with pytest.raises(InputError, match=r"^limits\.ndjson line 2: deadlineMs: "):
        list(read_ndjson_records(HttpLimits, path))
    path.write_bytes(b'{"deadlineMs":1}\n\n{"deadlineMs":2}\n')
    with pytest.raises(InputError, match=r"^limits\.ndjson line 2: "):
        list(read_ndjson_records(HttpLimits, path))


def test_an_empty_file_has_no_records(tmp_path: Path) -> None:
    path = tmp_path / "none.ndjson"
    path.write_bytes(b"")
    assert list(read_ndjson_records(HttpLimits, path)) == []


def test_the_lines_of_a_file_of_any_size_are_read_and_a_torn_last_one_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "lines.ndjson"
    path.write_bytes(b"12345\n\n1234\n123")
    assert list(read_lines(path, 6)) == [b"12345", b"", b"1234"]
    with pytest.raises(InputError, match="a line is larger than 4 bytes"):
        list(read_lines(path, 4))
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(InputError, match="is a symbolic link"):
        list(read_lines(tmp_path / "link", 6))
