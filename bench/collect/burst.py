"""CPU of one collected call, as ratios within one run (goals G1, G6), and memory of a large window.

The same calls are made three ways against the same mock server: dispatched without a journal (prepare, transport, reader,
timeline), collected with the runner on a disk that forgets, and collected with the runner on the real disk. CPU is this
process's own, both threads, over two run lengths, so that start-up cancels out. Signing both sides of an envelope is
measured apart, because no peer does it.

    python bench/collect/burst.py [--calls 2000] [--concurrency 32] [--paced] [--aiperf PYTHON] [--guidellm PYTHON]
    python bench/collect/burst.py --executions 100000     # memory of one large window

A peer runs from an environment of its own, with two lengths too; ``bench/meter.py`` counts the CPU of all its processes.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import itertools
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from peers import PEERS, Load, is_installed, write_tokenizer

from bench.meter import measured
from tasc_collector.contracts.envelope import TraceEnvelope
from tasc_collector.invocation.dispatch import dispatch
from tasc_collector.invocation.prepare import prepare
from tasc_collector.journal import OsFileSystem, RecordKind, scan
from tasc_collector.shadow.context import RunContext
from tasc_collector.shadow.envelopes import attested, execution_ids, signed_intent
from tasc_collector.shadow.executions import pairs_of, planned_pairs
from tasc_collector.shadow.requests import generation_of, request_of
from tasc_collector.shadow.runner import RunResult, run_window
from tasc_collector.shadow.scheduler import StopSignal
from tests.support.run_contexts import Setup, run_context

SERVER = Path(__file__).resolve().parents[1] / "transport" / "server.py"
GOALS = {"aiperf": (12, 6), "guidellm": (15, 8)}
"""How many times cheaper than a peer: before envelope and signatures, and with them."""
TAX_GOALS = {False: 1.4, True: 1.2}
MEMORY_GOAL_MB = 2048
HOUR_MS = 3_600_000


class ForgetfulDisk(OsFileSystem):
    """Accepts every write and keeps none: the journal's own work without the disk's."""

    def pwrite(self, descriptor: int, data: bytes, offset: int) -> int:
        return len(data)

    def fdatasync(self, descriptor: int) -> None:
        return

    def fsync(self, descriptor: int) -> None:
        return


@contextmanager
def mock_server(*, paced: bool, tokens: int) -> Iterator[int]:
    """The transport bench's server on the last core; its port."""
    core = max(os.sched_getaffinity(0))
    pace = ["--ttft-ms", "100", "--itl-ms", "5"] if paced else []
    command = [sys.executable, str(SERVER), "--core", str(core), "--tokens", str(tokens), *pace]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()


def cpu_s(who: int = resource.RUSAGE_SELF) -> float:
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def context_of(port: int, folder: Path, calls: int, concurrency: int, tokens: int) -> RunContext:
    origin = f"http://127.0.0.1:{port}"
    plan = {
        "load_model": {"kind": "closed", "concurrency": concurrency},
        "maximum_attempts": 1,
        "replicates": max(1, calls // 2 // 10_000),
        "attempt_timeout_ms": 30_000,
        "generation": {"maximum_output_tokens": tokens},
    }
    replicates = int(plan["replicates"])  # type: ignore[call-overload]  # an int
    cases = [f"case-{number} " + "hello " * 64 for number in range(calls // 2 // replicates)]
    return run_context(Setup({"a": origin, "b": origin}, cases=cases, plan=plan, ends_ms=20_000 * HOUR_MS), folder)


async def dispatched(context: RunContext, concurrency: int) -> None:
    """The same calls without runner and journal."""
    pairs = pairs_of(planned_pairs(context.plan, context.declaration, context.case_set), context.cases)
    work = itertools.chain.from_iterable(((pair, profile) for profile in pair.order) for pair in pairs)

    async def lease() -> None:
        return

    async def worker() -> None:
        for pair, profile in work:
            generation = generation_of(pair.case, context.plan, context.target(profile))
            call = context.calls[profile]
            prepared = prepare(
                call, generation, payload_key=context.terms.payload_key, secrets=context.secrets, clock=context.clock
            )
            outcome = await dispatch(prepared, lease=lease)
            assert outcome.completed, outcome.exchange.code

    await asyncio.gather(*(worker() for _ in range(concurrency)))


def collected(context: RunContext) -> RunResult:
    result = _loop_run(run_window(context, StopSignal(), show=lambda _: None))
    assert isinstance(result, RunResult)
    assert result.states == {"success": result.planned}, result
    return result


def _loop_run(work: object) -> object:
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)  # type: ignore[arg-type]  # a coroutine
    return uvloop.run(work)  # type: ignore[arg-type]  # a coroutine


def per_call_ms(port: int, kind: str, calls: int, concurrency: int, tokens: int) -> tuple[float, float]:
    """CPU milliseconds of one call, and calls per second, from two run lengths."""
    seen: list[tuple[float, float]] = []
    for length in (calls // 4, calls):
        folder = Path(tempfile.mkdtemp(prefix="tasc-bench-"))
        context = context_of(port, folder / "run", length, concurrency, tokens)
        if kind == "forgetful":
            context = dataclasses.replace(context, fs=ForgetfulDisk())
        cpu, wall = cpu_s(), time.perf_counter()
        if kind == "dispatch":
            _loop_run(dispatched(context, concurrency))
        else:
            collected(context)
        seen.append((cpu_s() - cpu, time.perf_counter() - wall))
        shutil.rmtree(folder)
    more = calls - calls // 4
    return 1e3 * (seen[1][0] - seen[0][0]) / more, more / (seen[1][1] - seen[0][1])


def signing_ms(port: int, tokens: int) -> float:
    """CPU milliseconds of an envelope and its two signatures."""
    folder = Path(tempfile.mkdtemp(prefix="tasc-bench-"))
    context = context_of(port, folder / "run", 2, 1, tokens)
    collected(context)
    accepted = [r for r in scan(context.folder, context.binding, context.journal_key) if r.kind is RecordKind.ACCEPTED]
    envelope = TraceEnvelope.from_value(accepted[0].body["trace"], where="bench").value
    pair = next(pairs_of(planned_pairs(context.plan, context.declaration, context.case_set), context.cases))
    target = context.target(envelope["profileId"])
    body = request_of(pair.case, context.plan, target, context.calls[target.profile_id].profile).body
    rounds, start = 500, cpu_s()
    for _ in range(rounds):
        trace, decision = execution_ids(context.terms, pair, target, context.terms.payload_key.identify(body))
        intent = signed_intent(
            context.terms,
            pair,
            target,
            trace=trace,
            decision=decision,
            issued_at=envelope["dispatchIntent"]["issuedAt"],
        )
        attested(
            context.terms,
            intent,
            envelope["attempts"],
            envelope["terminalOutputId"],
            collected_at=envelope["collectorAttestation"]["collectedAt"],
        )
    shutil.rmtree(folder)
    return 1e3 * (cpu_s() - start) / rounds


def peer_ms(name: str, python: Path, port: int, options: argparse.Namespace) -> float:
    """CPU milliseconds of one call of a peer, all of its processes, from two run lengths."""
    seen = []
    with tempfile.TemporaryDirectory(prefix="tasc-bench-") as folder:
        write_tokenizer(python, Path(folder))
        for length in (options.calls // 4, options.calls):
            load = Load(f"http://127.0.0.1:{port}", length, options.concurrency, options.tokens)
            used = measured(["taskset", "-c", "0", *PEERS[name](python, load, Path(folder))])
            assert used.code == 0, f"{name} ended with {used.code}"
            seen.append(used.cpu_s)
    return 1e3 * (seen[1] - seen[0]) / (options.calls - options.calls // 4)


def compare(options: argparse.Namespace) -> None:
    with mock_server(paced=options.paced, tokens=options.tokens) as port:
        found = {
            kind: per_call_ms(port, kind, options.calls, options.concurrency, options.tokens)
            for kind in ("dispatch", "forgetful", "runner")
        }
        signing = signing_ms(port, options.tokens)
        for kind, (cpu, rate) in found.items():
            print(f"{kind:>10}: {cpu:6.3f} ms CPU per call, {rate:8.0f} calls/s")
        whole = found["runner"][0]
        print(
            f"   signing: {signing:6.3f} ms CPU per envelope, so {whole - signing:.3f} ms before envelope and signatures"
        )
        tax = whole / found["forgetful"][0]
        print(f"G6 disk against none: {tax:.2f} times the CPU (goal <= {TAX_GOALS[options.paced]})")
        bare = found["dispatch"][0]
        print(
            f"   runner against dispatch alone: {whole / bare:.2f} times, without signing {(whole - signing) / bare:.2f}"
        )
        for name, (before, with_them) in GOALS.items():
            python: Path | None = getattr(options, name)
            if python is None or not is_installed(name, python):
                print(f"G1 {name}: not installed, not compared (give --{name} the Python that has it)")
                continue
            cost = peer_ms(name, python, port, options)
            print(
                f"G1 {name}: {cost:.2f} ms; ours 1/{cost / (whole - signing):.1f} before signing (goal 1/{before}), "
                f"1/{cost / whole:.1f} with them (goal 1/{with_them})"
            )


def large_window(options: argparse.Namespace) -> None:
    """Peak memory of one window of so many executions."""
    with mock_server(paced=False, tokens=1) as port:
        folder = Path(tempfile.mkdtemp(prefix="tasc-bench-"))
        start = time.perf_counter()
        result = collected(context_of(port, folder / "run", options.executions, options.concurrency, 1))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        seconds = time.perf_counter() - start
        print(f"{result.planned} executions in {seconds:.0f} s, peak {peak:.0f} MB (goal <= {MEMORY_GOAL_MB})")
        shutil.rmtree(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=2_000)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--paced", action="store_true")
    for name in GOALS:
        parser.add_argument(f"--{name}", type=Path, metavar="PYTHON", help=f"interpreter that has {name} installed")
    parser.add_argument("--executions", type=int)
    options = parser.parse_args()
    if options.executions:
        large_window(options)
    else:
        compare(options)


if __name__ == "__main__":
    main()
