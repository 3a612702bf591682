"""Canaries in every prompt and every answer are found nowhere but in the operator's own file."""

from __future__ import annotations

import base64
import bz2
import gzip
import html
import io
import json
import lzma
import os
import sqlite3
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import quote, urlencode

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasc_collector.errors import InputError
from tasc_pipeline.steps.privacy import forms, page, scan, search
from tasc_pipeline.warehouse import plain_contents
from tasc_pipeline.warehouse.plain_contents import Kind
from tests.support.window import fresh_home

ROOT = Path(__file__).resolve().parents[2]
PROMPT, ANSWER = "canary-prompt-5f1c9ad2", "canary-answer-88e0b7c3"


def test_the_demo_leaves_no_word_of_prompt_or_answer_anywhere(tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("".join(f"{PROMPT} number {number} asks something.\n" for number in range(12)))
    home = tmp_path / "home"
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from tasc_pipeline.cli import main; main()",
            "demo",
            "--port",
            "0",
            "--prompts",
            str(prompts),
            "--answer-prefix",
            ANSWER,
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
        cwd=tmp_path,
        env={**os.environ, "TASC_HOME": str(home), "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 0, done.stderr
    (tmp_path / "stdout.txt").write_text(done.stdout)
    (tmp_path / "stderr.txt").write_text(done.stderr)
    assert scan([tmp_path], [PROMPT, ANSWER], leave_out=[prompts]) == []
    assert scan([prompts], [PROMPT]), "the search itself finds what is there"
    assert (home / "warehouse.duckdb").is_file() and list(home.rglob("part-*.parquet")), "there was something to search"


AWKWARD = 'an "awkward" caf\u00e9/?&=+\\ line'
"""Every coding changes something in it."""


def zipped(data: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("notes.txt", data)
    return packed.getvalue()


def written(text: str, before: bytes) -> dict[str, bytes]:
    """The text as other programs write it, after some bytes of theirs."""
    raw = before + text.encode()
    return {
        "raw": raw,
        "hex": raw.hex().encode(),
        "hex-upper": raw.hex().upper().encode(),
        "base64": base64.b64encode(raw + b"tail"),
        "base64-end": base64.b64encode(raw),
        "base64url": base64.urlsafe_b64encode(raw + b"tail"),
        "url": before + quote(text, safe="").encode(),
        "url-path": before + quote(text).encode(),
        "html": before + html.escape(text).encode(),
        "html-markup": before + html.escape(text).replace("&quot;", "&#34;").encode(),
        "svg": before + html.escape(text, quote=False).encode(),
        "python-text": repr(before.decode() + text).encode(),
        "python-bytes": repr(raw).encode(),
        "form": before + urlencode({"q": text}).encode(),
        "json": json.dumps({"q": before.decode() + text}).encode(),
        "json-slashes": json.dumps({"q": text}).replace("/", "\\/").encode(),
        "json-upper": json.dumps({"q": text}).replace("\\u00e9", "\\u00E9").encode(),
        "json-unicode": json.dumps({"q": text}, ensure_ascii=False).encode(),
        "json-in-json": json.dumps(json.dumps({"q": text})).encode(),
        "gzip": gzip.compress(raw),
        "bzip2": bz2.compress(raw),
        "xz": lzma.compress(raw),
        "zip": zipped(raw),
        "utf16": text.encode("utf-16-le"),
        "utf16-big": text.encode("utf-16-be"),
    }


@pytest.mark.parametrize("text", [PROMPT, AWKWARD])
@pytest.mark.parametrize("before", [b"", b"a", b"bc"])
def test_every_form_of_a_needle_is_found(tmp_path: Path, before: bytes, text: str) -> None:
    for name, data in written(text, before).items():
        (tmp_path / name).write_bytes(data)
    assert {hit.file.name for hit in scan([tmp_path], [text])} == set(written(text, before))
    assert scan([tmp_path], ["another text altogether"]) == []


def test_a_name_of_a_file_is_searched(tmp_path: Path) -> None:
    (tmp_path / f"{PROMPT}.txt").write_bytes(b"")
    assert [hit.form for hit in scan([tmp_path], [PROMPT])] == ["raw"]


def test_names_of_folders_and_where_links_point_are_searched(tmp_path: Path) -> None:
    (tmp_path / "outer" / f"of-{PROMPT}").mkdir(parents=True)
    (tmp_path / "outer" / "to").symlink_to(f"/nowhere/{ANSWER}")
    (tmp_path / f"link-{ANSWER}").symlink_to("outer")
    found = {(hit.file.relative_to(tmp_path).as_posix(), hit.needle) for hit in scan([tmp_path], [PROMPT, ANSWER])}
    assert found == {(f"outer/of-{PROMPT}", 1), ("outer/to", 2), (f"link-{ANSWER}", 2)}
    text = page(search([tmp_path], [PROMPT, ANSWER]), tmp_path, searched_at="2026-11-29T12:00:00.000Z")
    assert "- text 1, raw: outer/of-[text 1]\n- text 2, raw: outer/to\n" in text
    assert PROMPT not in text and ANSWER not in text


def test_a_needle_across_two_pieces_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_contents, "PIECE_BYTES", 100)
    for at in (90, 99, 100, 101, 195):
        (tmp_path / f"at-{at}").write_bytes(b"." * at + PROMPT.encode() + b"." * 300)
    assert len(scan([tmp_path], [PROMPT])) == 5


def parquet(path: Path) -> None:
    pq.write_table(pa.table({"text": [PROMPT] * 100, "n": range(100)}), path, compression="zstd")


def dictionary_parquet(path: Path) -> None:
    rows = pa.table({"text": pa.array([PROMPT, "b", PROMPT]).dictionary_encode(), "blob": [[PROMPT.encode()], [], []]})
    pq.write_table(rows, path, compression="zstd")


def parquet_metadata(path: Path) -> None:
    pq.write_table(pa.table({"n": pa.array([1])}).replace_schema_metadata({"note": PROMPT}), path)


def duckdb_table(path: Path) -> None:
    with duckdb.connect(str(path)) as session:
        session.execute("CREATE TABLE notes AS SELECT ? || i::VARCHAR AS text FROM range(50000) t(i)", [PROMPT])


def duckdb_view(path: Path) -> None:
    with duckdb.connect(str(path)) as session:
        session.execute(f"CREATE VIEW notes AS SELECT '{PROMPT}' AS text")


def sqlite_long(path: Path) -> None:
    """A value that is spread over pages, in the middle of which stands the needle."""
    with closing(sqlite3.connect(path)) as session, session:
        session.execute("CREATE TABLE logs (event TEXT)")
        session.execute("INSERT INTO logs VALUES (?)", ["x" * 4070 + PROMPT + "y" * 9000])


def sqlite_packed(path: Path) -> None:
    """As Dagster keeps snapshots and cursors."""
    packed = zlib.compress(json.dumps({"q": PROMPT}).encode())
    with closing(sqlite3.connect(path)) as session, session:
        session.execute("CREATE TABLE snapshots (body BLOB, cursor TEXT)")
        session.execute("INSERT INTO snapshots VALUES (?, NULL)", [packed])
        session.execute("INSERT INTO snapshots VALUES (NULL, ?)", [base64.b64encode(packed).decode()])


@pytest.mark.parametrize(
    "write",
    [parquet, dictionary_parquet, parquet_metadata, duckdb_table, duckdb_view, sqlite_long, sqlite_packed],
    ids=lambda each: each.__name__,
)
def test_what_a_container_holds_is_searched_decoded(tmp_path: Path, write: Callable[[Path], None]) -> None:
    write(tmp_path / "file.without-a-telling-name")
    result = search([tmp_path], [PROMPT])
    assert [hit.needle for hit in result.hits] and not result.undecoded
    assert Kind.PLAIN not in result.files, "the file is known by its first bytes"


def test_a_container_that_cannot_be_decoded_is_named_and_the_search_is_incomplete(tmp_path: Path) -> None:
    for name, start in (("a.parquet", b"PAR1"), ("b.duckdb", b"\0" * 8 + b"DUCK"), ("c.db", b"SQLite format 3\0")):
        (tmp_path / name).write_bytes(start + b"damaged" * 100)
    (tmp_path / "d.gz").write_bytes(gzip.compress(b"text" * 1000)[:-20])
    (tmp_path / "e.zip").write_bytes(zipped(b"text" * 1000)[:-20])
    (tmp_path / "f.zst").write_bytes(b"\x28\xb5\x2f\xfd" + b"packed" * 10)
    result = search([tmp_path], [PROMPT])
    assert [path.name for path in result.undecoded] == ["a.parquet", "b.duckdb", "c.db", "d.gz", "e.zip", "f.zst"]
    assert not result.clean
    text = page(result, tmp_path, searched_at="2026-11-29T12:00:00.000Z")
    assert "**INCOMPLETE**" in text and "- b.duckdb (damaged, or in use: search again)" in text


def test_a_link_is_named_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "cases.txt").write_text(PROMPT)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "cases.txt").symlink_to(tmp_path / "outside" / "cases.txt")
    result = search([tmp_path / "home"], [PROMPT])
    assert result.hits == [] and [path.name for path in result.links] == ["cases.txt"]


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from tasc_pipeline.cli import main; main()", "privacy-scan", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=folder,
        env={**os.environ, "TASC_HOME": str(folder / "home"), "PYTHONPATH": str(ROOT)},
    )


def test_the_command_prints_a_page_that_shows_no_needle(tmp_path: Path) -> None:
    home = fresh_home(tmp_path)
    (tmp_path / "needles.txt").write_text(f"{ANSWER}\n\n{PROMPT}\n")
    done = command(tmp_path, "--needles", "needles.txt")
    assert done.returncode == 0, done.stderr
    assert "**NOTHING WAS FOUND**" in done.stdout and "2 texts were looked for" in done.stdout
    assert "DuckDB, every table and view" in done.stdout and "Parquet, every column decoded" in done.stdout
    parquet(home.warehouse / "stray.parquet")
    (home.root / "cases.jsonl").write_text(PROMPT)
    found = command(tmp_path, "--needles", "needles.txt", "--leave-out", str(home.root / "cases.jsonl"))
    assert found.returncode == 1
    assert "- text 2, raw: warehouse/stray.parquet" in found.stdout and "PLACES FOUND" in found.stdout
    assert "## Left out, as asked\n\n- cases.jsonl" in found.stdout
    assert PROMPT not in found.stdout + found.stderr and ANSWER not in found.stdout + found.stderr


def test_a_short_needle_or_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="too short"):
        scan([tmp_path], ["short"])
    with pytest.raises(InputError, match="nothing to search for"):
        scan([tmp_path], [])


def test_forms_are_long_enough_to_mean_something() -> None:
    assert all(len(value) >= 8 for value in forms("12345678").values())
