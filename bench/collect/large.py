"""One large window from its study to its assessment: time and peak memory of every step (100,000 executions within 2 GiB).

    python bench/collect/large.py [--executions 100000] [--concurrency 32] [--tokens 2] [--keep FOLDER]

Two contract servers in processes of their own answer; every step runs in a process of its own, so that its peak is its own.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tasc_pipeline.home import Home

ROOT = Path(__file__).resolve().parents[2]
MEMORY_GOAL_MB = 2048
MOST_CASES = 10_000
STEPS = ("study", "plan", "collect", "publish", "verify", "close", "assess")


def now() -> datetime:
    return datetime.now(UTC)


def study(home: Home, options: argparse.Namespace) -> str:
    """A home, its study, and the prompts."""
    from tasc_pipeline.home.setup import init_home
    from tasc_pipeline.steps.new_study import NewStudy, Server, new_study
    from tasc_pipeline.warehouse.database import build_views

    init_home(home, now(), lambda _: None)
    build_views(home.root, clock=now)
    prompts, cases = home.root.parent / "prompts.txt", min(options.executions // 2, MOST_CASES)
    prompts.write_text("".join(f"Case {number}: say something about the number {number}.\n" for number in range(cases)))
    champion, candidate = (Server(origin) for origin in options.servers)
    wanted = NewStudy(
        "first",
        "bench",
        champion,
        (candidate,),
        prompts,
        replicates=options.executions // 2 // cases,
        concurrency=options.concurrency,
        maximum_output_tokens=options.tokens,
        warm_up=1,
    )
    return str(new_study(home, wanted, now()).calls)


def plan(home: Home, options: argparse.Namespace) -> str:
    """Seal, plan, approve; prints the window's key."""
    from tasc_pipeline.steps import plan as planning
    from tasc_pipeline.steps import seal

    bounds = seal.SealOptions(lead_s=1.0, minutes=60.0 * 24 * 7)
    key = seal.seal(home, "first", bounds, now()).window_key
    made, _ = planning.make_plan(home, key, now(), write=True)
    planning.approve(home, key, made.digest, now())
    (home.root.parent / "key").write_text(key)
    return key


def collect(home: Home, options: argparse.Namespace) -> str:
    from tasc_pipeline.steps import collect as collecting

    result = collecting.collect(home, key_of(home), show=lambda _: None)
    assert result.status == "complete", result
    return str(result.states)


def publish(home: Home, options: argparse.Namespace) -> str:
    from tasc_pipeline.steps import publish as publishing

    return str(dict(publishing.publish(home, key_of(home)).rows))


def verify(home: Home, options: argparse.Namespace) -> str:
    from tasc_pipeline.steps.verify import findings

    found = list(findings(home, key_of(home)))
    assert all(finding.sound for finding in found)
    return f"{len(found)} findings"


def close(home: Home, options: argparse.Namespace) -> str:
    from tasc_pipeline.steps import close as closing

    closing.close(home, key_of(home))
    return "closed"


def assess(home: Home, options: argparse.Namespace) -> str:
    from tasc_pipeline.steps.assess import assess as assessing

    return ", ".join(result.verdict for result in assessing(home, key_of(home)).comparisons)


def key_of(home: Home) -> str:
    return (home.root.parent / "key").read_text()


RUN: dict[str, Callable[[Home, argparse.Namespace], str]] = {
    "study": study,
    "plan": plan,
    "collect": collect,
    "publish": publish,
    "verify": verify,
    "close": close,
    "assess": assess,
}


def one_step(options: argparse.Namespace) -> None:
    """In a process of its own: the step, then what it used, as JSON."""
    start = time.perf_counter()
    said = RUN[options.step](Home(options.keep / "home"), options)
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(
        json.dumps(
            {
                "said": said,
                "seconds": time.perf_counter() - start,
                "cpu_s": used.ru_utime + used.ru_stime,
                "peak_mb": used.ru_maxrss / 1024,
            }
        )
    )


def started_server(runtime: str) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-m", "tasc_collector.contract_servers", runtime, "--ttft-ms", "0", "--itl-ms", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())["origin"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--executions", type=int, default=100_000)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="folder that is kept; by default a temporary one")
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    parser.add_argument("--servers", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step is not None:
        one_step(options)
        return
    with tempfile.TemporaryDirectory(prefix="tasc-bench-") as folder:
        options.keep = options.keep or Path(folder)
        options.keep.mkdir(parents=True, exist_ok=True)
        servers = [started_server("vllm"), started_server("llama.cpp")]
        try:
            for step in STEPS:
                show(step, run_step(step, options, [origin for _, origin in servers]))
        finally:
            for process, _ in servers:
                process.kill()
                process.wait()


def run_step(step: str, options: argparse.Namespace, servers: list[str]) -> dict[str, object]:
    words = [sys.executable, __file__, "--step", step, "--keep", str(options.keep), "--servers", *servers]
    for name in ("executions", "concurrency", "tokens"):
        words += [f"--{name}", str(getattr(options, name))]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def show(step: str, used: dict[str, object]) -> None:
    print(
        f"{step:8} {used['seconds']:8.1f} s {used['cpu_s']:8.1f} s of CPU {used['peak_mb']:7.0f} MB "
        f"(goal <= {MEMORY_GOAL_MB})  {used['said']}",
        flush=True,
    )


if __name__ == "__main__":
    main()
