"""What the device tests share: vendor tools as real small programs, and a file system root of their own."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest

from tasc_compute.contracts import HostArch, HostPlatform
from tasc_compute.devices.finding import HostMemory, ProbeContext
from tasc_compute.devices.runner import ToolRunner

GIB = 1024**3
MEMORY = HostMemory(128 * GIB, 100 * GIB)


class MakeTool(Protocol):
    """Installs a program that prints by its arguments; the first pattern that its arguments hold decides."""

    def __call__(self, name: str, answers: dict[str, str], *, exit_codes: dict[str, int] | None = None) -> Path: ...


class MakeContext(Protocol):
    """A probe's context on this test's own root, tools and memory."""

    def __call__(
        self, *, platform: HostPlatform = ..., arch: HostArch = ..., memory: HostMemory | None = ...
    ) -> ProbeContext: ...


@pytest.fixture
def bin_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder


@pytest.fixture
def tool(bin_folder: Path) -> MakeTool:
    def make(name: str, answers: dict[str, str], *, exit_codes: dict[str, int] | None = None) -> Path:
        lines = ["#!/bin/sh", 'case "$*" in']
        for number, (pattern, output) in enumerate(answers.items()):
            answer = bin_folder / f"{name}.{number}.txt"
            answer.write_text(output)
            lines.append(f'*"{pattern}"*) /bin/cat "{answer}"; exit {(exit_codes or {}).get(pattern, 0)};;')
        lines += ["*) exit 64;;", "esac"]
        path = bin_folder / name
        path.write_text("\n".join(lines) + "\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    return make


@pytest.fixture
def runner(bin_folder: Path) -> ToolRunner:
    return ToolRunner({"PATH": str(bin_folder)}, extra_path=())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


@pytest.fixture
def put(root: Path) -> Callable[[str, str], None]:
    """Writes a file below the root."""

    def write(name: str, content: str) -> None:
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)

    return write


@pytest.fixture
def make_context(root: Path, runner: ToolRunner) -> MakeContext:
    def make(
        *,
        platform: HostPlatform = HostPlatform.LINUX,
        arch: HostArch = HostArch.X64,
        memory: HostMemory | None = MEMORY,
    ) -> ProbeContext:
        return ProbeContext(runner, root, platform, arch, memory)

    return make
