"""A study file that is no TOML: the message names the line and quotes nothing of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasc_collector.contracts.operations import KeyRing
from tasc_collector.errors import InputError
from tasc_pipeline.home.toml_records import read_toml


@pytest.mark.parametrize(("text", "where"), [("a = 1\nb = = secret\n", "study.toml:2"), ("a = '", "study.toml")])
def test_a_file_that_is_no_toml_names_its_line(tmp_path: Path, text: str, where: str) -> None:
    path = tmp_path / "study.toml"
    path.write_text(text)
    with pytest.raises(InputError) as refused:
        read_toml(KeyRing, path)
    assert f"{where}: not valid TOML" in str(refused.value) and "secret" not in str(refused.value)
