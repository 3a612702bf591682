"""The rules of the house that import-linter cannot say: who may open sockets, start processes, read secrets or the clock."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("tasc_collector", "tasc_compute", "tasc_pipeline")

DOORS = {
    "socket": (
        "tasc_collector/transport/",
        "tasc_collector/contract_servers/",
        "tasc_compute/health.py",
        "tasc_compute/ports.py",
    ),
    "ssl": ("tasc_collector/transport/", "tasc_collector/contract_servers/"),
    "http.client": ("tasc_compute/health.py",),
    "urllib.request": (),
    "httpx": ("tasc_collector/transport/",),
    "httpcore": (),
    "requests": (),
    "aiohttp": (),
    "subprocess": ("tasc_compute/launchers/", "tasc_compute/devices/", "tasc_pipeline/cli/", "tasc_pipeline/demo/"),
    "multiprocessing": (),
    "docker": ("tasc_compute/launchers/",),
    "pyarrow": ("tasc_pipeline/warehouse/",),
    "duckdb": ("tasc_pipeline/warehouse/",),
    "matplotlib": ("tasc_pipeline/warehouse/",),
    "dagster": (
        "tasc_pipeline/assets/",
        "tasc_pipeline/definitions.py",
        "tasc_pipeline/partitions.py",
        "tasc_pipeline/jobs.py",
        "tasc_pipeline/sensors.py",
        "tasc_pipeline/schedules.py",
        "tasc_pipeline/probe_jobs.py",
        "tasc_pipeline/probe_requests.py",
        "tasc_pipeline/prepare_jobs.py",
        "tasc_pipeline/engine_jobs.py",
        "tasc_pipeline/engine_sensor.py",
        "tasc_pipeline/notice_sensors.py",
        "tasc_pipeline/checks.py",
        "tasc_pipeline/failures.py",
        "tasc_pipeline/resources.py",
        "tasc_pipeline/ops.py",
        "tasc_pipeline/instance.py",
    ),
}
"""Module to the only places that may import it."""

PURE = {
    "tasc_pipeline/control/": (
        "dagster",
        "duckdb",
        "pyarrow",
        "socket",
        "os",
        "time",
        "pathlib",
        "subprocess",
        "random",
        "secrets",
    ),
    "tasc_collector/contracts/": ("socket", "os", "time", "subprocess", "random", "secrets"),
    "tasc_collector/wire/": ("socket", "time", "subprocess", "random", "secrets"),
    "tasc_collector/runtimes/": ("socket", "os", "time", "subprocess", "secrets"),
    "tasc_compute/contracts.py": ("socket", "os", "time", "pathlib", "subprocess", "json"),
    "tasc_compute/engines/": ("socket", "time", "subprocess"),
}
"""Places that must stay pure, and what they may not import."""

ENVIRONMENT_READERS = (
    "tasc_collector/secrets.py",
    "tasc_collector/smoke.py",
    "tasc_pipeline/home/layout.py",
    "tasc_pipeline/home/keys.py",
    "tasc_pipeline/cli/",
    "tasc_pipeline/demo/",
    "tasc_pipeline/resources.py",
    "tasc_compute/launchers/",
    "tasc_compute/devices/",
    "tasc_compute/binaries.py",
    "tasc_collector/transport/",
)
"""Who may touch ``os.environ``: secrets at dispatch, the command line, and processes that need a chosen base environment."""


@cache
def sources() -> tuple[tuple[str, ast.Module], ...]:
    """Every module of the packages, parsed once for all rules."""
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return tuple((path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(encoding="utf-8"))) for path in paths)


@cache
def imported(tree: ast.Module) -> frozenset[str]:
    """Every absolute module name that a module imports, type-checking blocks included."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(found)


def names(module: str, imports: frozenset[str]) -> bool:
    return any(name == module or name.startswith(module + ".") for name in imports)


@pytest.mark.parametrize("module", sorted(DOORS))
def test_a_module_is_imported_only_behind_its_door(module: str) -> None:
    strangers = [
        path for path, tree in sources() if names(module, imported(tree)) and not path.startswith(DOORS[module])
    ]
    assert strangers == []


@pytest.mark.parametrize("place", sorted(PURE))
def test_a_pure_place_imports_no_effect(place: str) -> None:
    found = [
        f"{path} imports {module}"
        for path, tree in sources()
        if path.startswith(place)
        for module in PURE[place]
        if names(module, imported(tree))
    ]
    assert found == []


def test_only_named_places_read_the_environment() -> None:
    readers = [
        path
        for path, tree in sources()
        if any(
            isinstance(node, ast.Attribute) and node.attr in ("environ", "environb", "getenv")
            for node in ast.walk(tree)
        )
    ]
    assert [path for path in readers if not path.startswith(ENVIRONMENT_READERS)] == []


def test_no_module_is_longer_than_600_lines() -> None:
    long = [
        path
        for path in (p for package in PACKAGES for p in (ROOT / package).rglob("*.py"))
        if len(path.read_text().splitlines()) > 600
    ]
    assert long == []


def test_no_module_branches_on_a_runtime_by_name() -> None:
    """A runtime's oddities live in its table or its module."""
    runtimes = {"vllm", "sglang", "tensorrt-llm", "llama.cpp", "ollama", "tgi", "lm-studio", "mlx-lm"}
    found = []
    for path, tree in sources():
        if path.startswith("tasc_collector/contract_servers/"):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Compare) and any(
                isinstance(part, ast.Constant) and part.value in runtimes for part in ast.walk(node)
            ):
                found.append(f"{path}:{node.lineno}")
    assert found == []


def test_nothing_swallows_every_exception() -> None:
    found = []
    for path, tree in sources():
        for node in ast.walk(tree):
            if isinstance(node, ast.ExceptHandler) and node.type is None:
                found.append(f"{path}:{node.lineno}")
    assert found == []
