"""A contract server in its own process, for tests in which one side is killed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from tasc_collector.contract_servers import Ledger
from tests.support.processes import next_line

ROOT = Path(__file__).resolve().parents[2]


class ContractProcess:
    """``python -m tasc_collector.contract_servers`` with a ledger file.

    Args:
        runtime: runtime name.
        ledger_path: where the ledger goes.
        options: further options, for instance ``--itl-ms 5``.
    """

    def __init__(self, runtime: str, ledger_path: Path, *options: str) -> None:
        self._path = ledger_path
        command = [
            sys.executable,
            "-m",
            "tasc_collector.contract_servers",
            runtime,
            "--ledger",
            str(ledger_path),
            *options,
        ]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
        line = next_line(self.process)
        if not line:
            raise AssertionError(f"the server did not start: {self.process.communicate(timeout=30)[1]}")
        ready = json.loads(line)
        self.origin: str = ready["origin"]
        self.port: int = ready["port"]
        self.model: str = ready["model"]

    @property
    def ledger(self) -> Ledger:
        """What the file says now."""
        return Ledger.read(self._path)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.communicate(timeout=30)

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        self.process.terminate()
        self.process.communicate(timeout=30)
        return self.process.returncode

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.kill()
