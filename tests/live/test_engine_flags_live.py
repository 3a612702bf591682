"""The flags of our plans against what the installed engines themselves say to ``--help``; nothing is launched."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tasc_compute.binaries import located_binary
from tasc_compute.contracts import EngineId
from tests.support.live_engines import MLX_BINARY, llama_recipe, needs_llama, needs_mlx
from tests.support.plan_cases import engine_flags, flags_in_help

pytestmark = pytest.mark.live
HELP_TIMEOUT_S = 120


def help_of(binary: str, env: Mapping[str, str]) -> str:
    """What it prints; an import of a whole framework may come before."""
    done = subprocess.run(
        [binary, "--help"],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=True,
        timeout=HELP_TIMEOUT_S,
    )
    return done.stdout


@needs_llama
def test_llama_server_knows_every_flag_of_its_plans(tmp_path: Path) -> None:
    binary = llama_recipe().binary
    assert binary is not None
    found = located_binary(binary, tmp_path / "links")
    assert engine_flags(EngineId.LLAMACPP) - flags_in_help(help_of(str(found.path), found.env)) == set()


@needs_mlx
def test_mlx_lm_knows_every_flag_of_its_plans(tmp_path: Path) -> None:
    assert MLX_BINARY is not None
    known = flags_in_help(help_of(MLX_BINARY, {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "COLUMNS": "200"}))
    assert engine_flags(EngineId.MLX) - known == set()
