"""The flags of our plans are flags of the engines: compared with the ``--help`` texts of the pinned versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasc_compute.contracts import EngineId
from tests.support.plan_cases import engine_flags, flags_in_help

HELP = {
    EngineId.VLLM: "vllm_help.txt",
    EngineId.SGLANG: "sglang_help.txt",
    EngineId.LLAMACPP: "llama_help.txt",
    EngineId.MLX: "mlx_lm_server_help.txt",
}


@pytest.mark.parametrize("engine", list(HELP))
def test_every_flag_of_the_golden_plans_is_known_to_the_pinned_engine(engine: EngineId, shared: Path) -> None:
    path = shared / "facts" / "help" / HELP[engine]
    if not path.is_file():
        pytest.skip(f"the folder 'shared' has no help text {path.name}")
    used = engine_flags(engine)
    assert {"--host", "--port"} < used, "the plans were read"
    assert used - flags_in_help(path.read_text()) == set()


def test_a_flag_that_is_only_mentioned_in_an_explanation_is_not_a_flag_of_the_engine() -> None:
    text = """usage: engine [-h] [--gone]
options:
  --new NEW, -n NEW  Replaces --old.
                     --older went before it.
-c,    --ctx-size N                     size of the context, see --large
"""
    assert flags_in_help(text) == {"--new", "-n", "--ctx-size", "-c"}
