"""The project's runner in a process of its own, to be killed: ``python -m tests.support.runner_process FOLDER SPEC``.

It prints the number of executions that it was told are durable, a line for each change.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from tasc_collector.contract_servers import Behaviour, ContractServer
from tasc_collector.shadow.context import RunContext
from tasc_collector.shadow.progress import Snapshot
from tasc_collector.shadow.runner import run_blocking
from tests.support.run_contexts import Setup, run_context

MODEL = "org/model"
QUICK = Behaviour(tokens=3, model=MODEL)


class Window:
    """A window that several processes collect one after the other.

    Args:
        servers: the profiles' servers by profile id.
        cases: prompts.
        concurrency: pairs in flight.
    """

    def __init__(self, servers: Mapping[str, ContractServer], cases: int, concurrency: int) -> None:
        self._servers = servers
        self._spec = {
            "origins": {name: server.origin for name, server in servers.items()},
            "cases": cases,
            "concurrency": concurrency,
            "at_ms": time.time_ns() // 1_000_000,
        }

    def context(self, folder: Path) -> RunContext:
        """The context in this process."""
        return _context(folder, json.dumps(self._spec))

    def command(self, folder: Path) -> list[str]:
        """The program that collects it."""
        return [sys.executable, "-m", "tests.support.runner_process", str(folder), json.dumps(self._spec)]

    @property
    def most_sent(self) -> int:
        """How often the servers counted the request that they counted most."""
        return max(
            (count for server in self._servers.values() for count in server.ledger.by_request.values()), default=0
        )

    @property
    def sent(self) -> int:
        """Calls that the servers counted."""
        return sum(server.ledger.inference_calls for server in self._servers.values())


def _context(folder: Path, spec: str) -> RunContext:
    wanted = json.loads(spec)
    plan = {"load_model": {"kind": "closed", "concurrency": wanted["concurrency"]}}
    cases = [f"case {number}" for number in range(wanted["cases"])]
    return run_context(
        Setup(wanted["origins"], cases=cases, plan=plan, at_ms=wanted["at_ms"]),
        folder,
        segment_bytes=20_000,
        grow_bytes=8_192,
    )


def collect(context: RunContext) -> str:
    """Run to the end; the status."""
    return run_blocking(context, show=_told, show_every_s=0.0).status


def _told(snapshot: Snapshot) -> None:
    sys.stdout.write(f"{snapshot.done}\n")
    sys.stdout.flush()


def main() -> None:
    status = collect(_context(Path(sys.argv[1]), sys.argv[2]))
    sys.exit(0 if status == "complete" else 1)


if __name__ == "__main__":
    main()
