"""A disk on which the process ends before any chosen step."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from tasc_pipeline.warehouse.disk import Disk


class Stopped(BaseException):
    """The process ended here."""


class MortalDisk(Disk):
    """Ends the process before the n-th step."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def _step(self) -> None:
        if self.left == 0:
            raise Stopped
        self.left -= 1

    def create(self, path: Path) -> BinaryIO:
        self._step()
        return super().create(path)

    def sync(self, file: BinaryIO) -> None:
        self._step()
        super().sync(file)

    def sync_path(self, path: Path) -> None:
        self._step()
        super().sync_path(path)

    def replace(self, source: Path, target: Path) -> None:
        self._step()
        super().replace(source, target)

    def remove(self, path: Path) -> None:
        self._step()
        super().remove(path)
