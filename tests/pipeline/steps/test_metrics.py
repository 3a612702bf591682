"""Scrapes of a window: one signature for many, and what is refused or left out when the file is not what was signed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tasc_collector.canonical import canonical_bytes
from tasc_collector.contracts.observations import MetricsScrape, MetricValue, ScrapeEntry
from tasc_collector.contracts.operations import KeyRing
from tasc_collector.errors import DigestMismatch, InputError, NotAuthorized, SignatureError
from tasc_pipeline.home import Home, keys
from tasc_pipeline.home.lines import AppendedLines
from tasc_pipeline.home.signers import Signer
from tasc_pipeline.steps.metrics import SCRAPES, SCRAPES_PER_BATCH, ScrapeBatch, read_scrapes, scrapes_digest

KEY, OTHER = "w.r01-00000001", "w.r01-00000002"
NOW = datetime(2026, 11, 29, 10, 0, tzinfo=UTC)
AT = "2026-11-29T10:00:00.000Z"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    found = Home(tmp_path)
    found.keys.mkdir(parents=True)
    found.window(KEY).mkdir(parents=True)
    found.window(OTHER).mkdir(parents=True)
    keys.create_missing(found, NOW)
    return found


def ring(home: Home) -> KeyRing:
    return keys.read_ring(home)


def signer(home: Home, role: str = "collector") -> Signer:
    [entry] = [key for key in ring(home).keys if key.role == role]
    return Signer(keys.signing_key(home, f"keyfile:{role}.key"), entry.key_id)


def entry(number: int) -> ScrapeEntry:
    return ScrapeEntry(
        window_key=KEY,
        endpoint_alias="champion",
        endpoint_binding_digest="sha256:" + "0" * 64,
        phase="during",
        scraped_at=AT,
        took_ns=number,
        values=(MetricValue(metric="requests-running", labels=(), value=float(number)),),
        histograms=(),
        ignored_samples=0,
        non_finite_samples=0,
    )


def write(home: Home, count: int, *, by: str = "collector", sign: bool = True, first: int = 0) -> Path:
    path = home.window(KEY) / SCRAPES
    with AppendedLines(path) as lines:
        batch = ScrapeBatch(lines, KEY, signer(home, by), lambda: AT)
        for number in range(first, first + count):
            batch.append(entry(number))
        if sign:
            batch.sign()
    return path


def test_many_scrapes_have_one_signature_and_come_back_as_they_were(home: Home) -> None:
    count = SCRAPES_PER_BATCH + 3
    path = write(home, count)
    found = read_scrapes(home, KEY, ring(home))
    assert [scrape.took_ns for scrape in found] == list(range(count))
    assert found[5].values == entry(5).values and found[5].endpoint_alias == "champion"
    assert path.read_text().count("tasc-metrics-scrape-batch-v1") == 2


def test_a_resumed_run_appends(home: Home) -> None:
    write(home, 2)
    before = scrapes_digest(home, KEY, ring(home))
    write(home, 2, first=2)
    assert [scrape.took_ns for scrape in read_scrapes(home, KEY, ring(home))] == [0, 1, 2, 3]
    assert scrapes_digest(home, KEY, ring(home)) != before


def test_what_was_not_signed_before_the_end_is_left_out(home: Home) -> None:
    write(home, 2, sign=False)
    assert read_scrapes(home, KEY, ring(home)) == () and scrapes_digest(home, KEY, ring(home)) is None
    write(home, 1, first=9)
    assert [scrape.took_ns for scrape in read_scrapes(home, KEY, ring(home))] == [9]


def changed(lines: list[bytes]) -> list[bytes]:
    return [lines[0].replace(b'"tookNs":0', b'"tookNs":7'), *lines[1:]]


@pytest.mark.parametrize(
    "edit",
    [changed, lambda lines: lines[1:], lambda lines: [lines[1], lines[0], *lines[2:]]],
    ids=["a value", "a missing line", "another order"],
)
def test_lines_that_are_not_those_that_were_signed_are_refused(
    home: Home, edit: Callable[[list[bytes]], list[bytes]]
) -> None:
    path = write(home, 3)
    path.write_bytes(b"".join(line + b"\n" for line in edit(path.read_bytes().split(b"\n")[:-1])))
    with pytest.raises(DigestMismatch, match="not those that this batch signed"):
        read_scrapes(home, KEY, ring(home))


def test_an_edited_batch_and_one_of_another_window_or_role_are_refused(home: Home) -> None:
    path = write(home, 1)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"signedAt":"2026-11-29T10:00:00.000Z"', b'"signedAt":"2026-11-29T11:00:00.000Z"'))
    with pytest.raises(SignatureError):
        read_scrapes(home, KEY, ring(home))
    (home.window(OTHER) / SCRAPES).write_bytes(whole)
    with pytest.raises(InputError, match="belongs to another window"):
        read_scrapes(home, OTHER, ring(home))
    path.unlink()
    write(home, 1, by="dispatch")
    with pytest.raises(NotAuthorized, match="role dispatch"):
        read_scrapes(home, KEY, ring(home))


def test_a_server_cannot_make_a_line_look_like_a_batch(home: Home) -> None:
    label = '"version":"tasc-metrics-scrape-batch-v1","signature":'
    hostile = entry(0).model_copy(
        update={"values": (MetricValue(metric="requests-running", labels=(("model_name", label),), value=1.0),)}
    )
    with AppendedLines(home.window(KEY) / SCRAPES) as lines:
        batch = ScrapeBatch(lines, KEY, signer(home), lambda: AT)
        batch.append(hostile)
        batch.sign()
    [found] = read_scrapes(home, KEY, ring(home))
    assert found.values[0].labels == (("model_name", label),)


def test_a_file_of_an_earlier_version_with_a_signature_per_line_is_read(home: Home) -> None:
    key = signer(home)
    values = {name: getattr(entry(4), name) for name in ScrapeEntry.model_fields}
    old = MetricsScrape.sign_with(key.key, key.key_id, **values)
    path = home.window(KEY) / SCRAPES
    path.write_bytes(canonical_bytes(old.to_json()) + b"\n")
    assert read_scrapes(home, KEY, ring(home)) == (entry(4),)
    value = json.loads(path.read_bytes())
    value["tookNs"] = 5
    path.write_bytes(canonical_bytes(value) + b"\n")
    with pytest.raises(SignatureError):
        read_scrapes(home, KEY, ring(home))


def test_a_line_that_a_full_disk_takes_in_part_is_taken_back(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    path = home.window(KEY) / SCRAPES
    write_whole = os.write
    with AppendedLines(path) as lines:
        lines.write(b"first")
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", lambda descriptor, data: write_whole(descriptor, data[:3]))
            with pytest.raises(OSError, match="No space left"):
                lines.write(b"second")
        lines.write(b"third")
    assert path.read_bytes() == b"first\nthird\n"
