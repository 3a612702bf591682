"""``tasc contract-server``: one deterministic server by hand, in the foreground, with any fault by name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tasc_collector.contract_servers import CONTRACTS, Behaviour, ContractServer
from tasc_collector.contract_servers.options import fault_lines, read_calls, read_scope, read_tls, serve
from tasc_collector.errors import InputError
from tasc_pipeline.cli.common import out, run_guarded, say


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("contract-server")(contract_server)


def contract_server(
    runtime: Annotated[str | None, typer.Argument(help="Runtime name: " + ", ".join(sorted(CONTRACTS)))] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.")] = 0,
    ledger: Annotated[Path | None, typer.Option(help="File that gets one JSON line per request.")] = None,
    model: Annotated[str | None, typer.Option(help="Served model name.")] = None,
    ttft_ms: Annotated[float, typer.Option(help="Time to the first token.")] = 20.0,
    itl_ms: Annotated[float, typer.Option(help="Gap between tokens.")] = 5.0,
    tokens: Annotated[int, typer.Option(help="Answer length in tokens.")] = 16,
    tokens_spread: Annotated[int, typer.Option(help="Up to this many tokens more, by case.")] = 0,
    timing_spread: Annotated[float, typer.Option(help="Delays vary by this share, by case; 0 to 1.")] = 0.0,
    tokens_per_event: Annotated[int, typer.Option(help="Tokens that one event carries.")] = 1,
    reasoning_tokens: Annotated[int, typer.Option(help="Reasoning tokens before the answer.")] = 0,
    answer_prefix: Annotated[str, typer.Option(help="Put before every answer.")] = "",
    fault: Annotated[str | None, typer.Option(help="Fault name; see --list-faults.")] = None,
    fault_calls: Annotated[str | None, typer.Option(help="Call numbers that it hits, as in 3,7,10-12.")] = None,
    fault_share: Annotated[float | None, typer.Option(help="Share of calls that it hits, 0 to 1.")] = None,
    fault_scope: Annotated[str | None, typer.Option(help="inference, observation or all.")] = None,
    fault_at: Annotated[int | None, typer.Option(help="Token events before it breaks a stream.")] = None,
    seed: Annotated[int, typer.Option(help="Chooses the calls of --fault-share.")] = 0,
    stamp: Annotated[bool, typer.Option("--stamp", help="Put the send time into every event.")] = False,
    tls_cert: Annotated[Path | None, typer.Option(help="PEM chain, leaf first.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM private key.")] = None,
    list_faults: Annotated[bool, typer.Option("--list-faults", help="Print every fault and end.")] = False,
) -> None:
    """Run one contract server until Ctrl-C. Prints one JSON line with its origin when it is ready."""

    def run() -> None:
        if list_faults:
            out().print("\n".join(fault_lines()), markup=False)
            return
        if runtime is None:
            raise InputError(
                "no runtime was named",
                where="contract-server",
                way_out="name one of: " + ", ".join(sorted(CONTRACTS)) + "; faults: tasc contract-server --list-faults",
            )
        behaviour = Behaviour(
            ttft_ms=ttft_ms,
            itl_ms=itl_ms,
            tokens=tokens,
            tokens_spread=tokens_spread,
            timing_spread=timing_spread,
            tokens_per_event=tokens_per_event,
            reasoning_tokens=reasoning_tokens,
            answer_prefix=answer_prefix,
            model=model,
            fault=fault,
            fault_calls=read_calls(fault_calls),
            fault_share=fault_share,
            fault_scope=read_scope(fault_scope),
            fault_at=fault_at,
            seed=seed,
            stamp=stamp,
        )
        server = ContractServer(
            runtime, behaviour=behaviour, host=host, port=port, tls=read_tls(tls_cert, tls_key), ledger_path=ledger
        )
        serve(server, lambda line: out().print(line, markup=False))
        say(f"stopped: {server.ledger.requests} requests, {server.ledger.inference_calls} of them inference")

    raise typer.Exit(run_guarded(run))
