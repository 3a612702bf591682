"""``python -m tasc_collector.contract_servers RUNTIME``: one contract server in its own process.

Prints one JSON line ``{"origin": ...}`` when ready, then serves until SIGINT or SIGTERM. For tests and benches that
need a server that survives its client, or that can be killed.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

from tasc_collector.contract_servers.behaviour import Behaviour
from tasc_collector.contract_servers.options import fault_lines, read_calls, read_scope, read_tls, serve
from tasc_collector.contract_servers.server import ContractServer
from tasc_collector.errors import InputError, TascError


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tasc_collector.contract_servers", description=__doc__)
    add = parser.add_argument
    add("runtime", nargs="?", help="runtime name, for instance vllm")
    add("--list-faults", action="store_true", help="print every fault and end")
    add("--host", default="127.0.0.1")
    add("--port", type=int, default=0)
    add("--ledger", type=Path, help="file that gets one JSON line per request before its answer starts")
    add("--model", help="served model name")
    add("--ttft-ms", type=float, default=0.0)
    add("--itl-ms", type=float, default=0.0)
    add("--role-ms", type=float)
    add("--tokens", type=int, default=16)
    add("--tokens-spread", type=int, default=0)
    add("--timing-spread", type=float, default=0.0)
    add("--tokens-per-event", type=int, default=1)
    add("--events-per-write", type=int, default=1)
    add("--reasoning-tokens", type=int, default=0)
    add("--cached-tokens", type=int)
    add("--answer-prefix", default="")
    add("--fault", help="fault name")
    add("--fault-calls", help="call numbers that it hits, as in 3,7,10-12")
    add("--fault-share", type=float, help="share of calls that it hits, 0 to 1")
    add("--fault-scope", help="inference, observation or all")
    add("--fault-at", type=int, help="events with tokens before the fault breaks a stream")
    add("--seed", type=int, default=0)
    add("--stamp", action="store_true", help="put the send time into every event")
    add("--tls-cert", type=Path)
    add("--tls-key", type=Path)
    add("--until-stdin-closes", action="store_true", help="end when standard input does")
    add("--uvloop", action="store_true", help="use uvloop (extra bench)")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Parse, serve, return the exit code."""
    given = _parser().parse_args(arguments)
    if given.list_faults or given.runtime is None:
        sys.stdout.write("\n".join(fault_lines()) + "\n")
        return 0 if given.list_faults else 2
    try:
        behaviour = Behaviour(
            ttft_ms=given.ttft_ms,
            itl_ms=given.itl_ms,
            role_ms=given.role_ms,
            tokens=given.tokens,
            tokens_spread=given.tokens_spread,
            timing_spread=given.timing_spread,
            tokens_per_event=given.tokens_per_event,
            events_per_write=given.events_per_write,
            reasoning_tokens=given.reasoning_tokens,
            cached_tokens=given.cached_tokens,
            answer_prefix=given.answer_prefix,
            model=given.model,
            fault=given.fault,
            fault_calls=read_calls(given.fault_calls),
            fault_share=given.fault_share,
            fault_scope=read_scope(given.fault_scope),
            fault_at=given.fault_at,
            seed=given.seed,
            stamp=given.stamp,
        )
        server = ContractServer(
            given.runtime,
            behaviour=behaviour,
            host=given.host,
            port=given.port,
            tls=read_tls(given.tls_cert, given.tls_key),
            ledger_path=given.ledger,
            loop_factory=_uvloop() if given.uvloop else None,
        )
        serve(server, _announce, until_stdin_closes=given.until_stdin_closes)
    except TascError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


def _uvloop() -> Callable[[], asyncio.AbstractEventLoop]:
    """Uvloop's loop factory; the module is in the extra ``bench`` only.

    Raises:
        InputError: it is not installed.
    """
    if importlib.util.find_spec("uvloop") is None:
        raise InputError("uvloop is not installed", where="contract server", way_out="install the extra bench")
    factory: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module("uvloop").new_event_loop
    return factory


def _announce(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
