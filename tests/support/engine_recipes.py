"""Recipes for the fake engine, launched as real processes in a state folder."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path

from tasc_compute.lifecycle import stop
from tasc_compute.local import local_compute
from tasc_pipeline.home import Home

FAKE_ENGINE = Path(__file__).parent / "fake_engine.py"


class Engines:
    """Recipes for the fake engine, and what is known of the instances of one state folder."""

    def __init__(self, folder: Path, home: Home) -> None:
        self.folder, self.home = folder, home
        self.binary = folder / "fake-engine"
        self.binary.write_text(f"#!{sys.executable} -IS\n" + FAKE_ENGINE.read_text())
        self.binary.chmod(self.binary.stat().st_mode | stat.S_IXUSR)
        (folder / "tiny.gguf").write_bytes(b"GGUF")

    def recipe(self, name: str, **told: object) -> str:
        path = self.folder / f"{name}.toml"
        path.write_text(
            f"""
schema = "tasc-engine-recipe-v1"
name = "{name}"
engine = "llamacpp"
binary = "{self.binary}"
model = "tiny.gguf"
served_model_name = "tiny"
ready_deadline_s = 20
[env]
FAKE_ENGINE = '{json.dumps(told)}'
"""
        )
        return str(path)

    @property
    def names(self) -> list[str]:
        """Instances that hold a lease."""
        return sorted(local_compute(self.home.root).store.names())

    def stop_all(self) -> None:
        """Leave no process behind."""
        compute = local_compute(self.home.root)
        for name in compute.store.names():
            stop(name, compute)
