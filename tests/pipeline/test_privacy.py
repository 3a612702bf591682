"""Canaries in every prompt and every answer are found nowhere but in the operator's own file."""

from __future__ import annotations

import base64
import gzip
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tasc_collector.errors import InputError
from tasc_pipeline.steps.privacy import forms, scan

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
            "18341",
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


@pytest.mark.parametrize("before", [b"", b"a", b"bc"])
def test_every_form_of_a_needle_is_found(tmp_path: Path, before: bytes) -> None:
    text = PROMPT.encode()
    written = {
        "raw": before + text,
        "hex": (before + text).hex().encode(),
        "base64": base64.b64encode(before + text + b"tail"),
        "gzip": gzip.compress(before + text),
        "utf16": PROMPT.encode("utf-16-le"),
    }
    for name, data in written.items():
        (tmp_path / name).write_bytes(data)
    assert {hit.file.name for hit in scan([tmp_path], [PROMPT])} == set(written)


def test_a_compressed_parquet_column_is_searched(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"text": [PROMPT] * 100}), tmp_path / "part.parquet", compression="zstd")
    assert [hit.form for hit in scan([tmp_path], [PROMPT])]


def test_a_short_needle_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="too short"):
        scan([tmp_path], ["short"])


def test_forms_are_long_enough_to_mean_something() -> None:
    assert all(len(value) >= 8 for value in forms("12345678").values())
