"""A file that is no TOML: the message names file, line, rule and way out, and quotes nothing of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasc_collector.contracts.operations import KeyRing
from tasc_collector.errors import InputError
from tasc_pipeline.home.toml_records import read_toml
from tasc_pipeline.steps.decision_answers import read_answers
from tasc_pipeline.steps.validate import check_files

ENDS = "TOML 1.0; the file ends within a value"
BROKEN = [
    (b"a = 1\nb = = secret\n", 2, "TOML 1.0"),
    (b"a = 1\nsecret\n", 2, "TOML 1.0"),
    (b"a = 'secret", 1, ENDS),
    (b"a = 1\nb = [1,\n  2,\n", 3, ENDS),
    (b'a = 1\n\nb = """secret\nsecret\n', 4, ENDS),
    (b"a = 1\nb = '\xff'\n", 2, "UTF-8"),
    (b"a = 1\nb = " + b"[" * 100_000, 1, "not nested deeper than a record is"),
]


@pytest.mark.parametrize(("data", "line", "rule"), BROKEN)
def test_a_file_that_is_no_toml_names_its_line_and_the_rule(tmp_path: Path, data: bytes, line: int, rule: str) -> None:
    path = tmp_path / "study.toml"
    path.write_bytes(data)
    with pytest.raises(InputError) as refused:
        read_toml(KeyRing, path)
    error = refused.value
    assert (error.what, error.where, error.rule) == ("not valid TOML", f"{path}:{line}", rule)
    assert error.way_out and "secret" not in str(error)


def test_every_reader_of_a_truncated_file_says_its_line(tmp_path: Path) -> None:
    path = tmp_path / "answers.toml"
    path.write_text('version = "tasc-decision-answers-v1"\ngroups = [\n  "one",\n')
    [checked] = check_files([path])
    with pytest.raises(InputError) as answered:
        read_answers(path, ())
    for error in (checked.error, answered.value):
        said = f"answers.toml:3: not valid TOML (rule: {ENDS}) -> complete the file, or restore it"
        assert str(error).endswith(said)
