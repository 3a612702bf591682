"""All clients against one mock server in one run, as ratios (goals G2 and G3); the server on the last core, clients on core 0.

    python bench/transport/compare.py [--calls 400] [--concurrency 32] [--ttft-ms 100] [--itl-ms 5]
        [--tls | --aiperf PYTHON --guidellm PYTHON]

With ``--tls`` the server has a certificate of this run, which our client pins; ``tasc`` has no row then, because its policy
lets loopback only be plain, so ``exchange`` (transport and reader) stands for it. ``--concurrency 256 --ttft-ms 200 --itl-ms
10`` is the load of G3: 22,000 events/s. A peer that is not installed is said so.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "collect"))

from peers import PEERS, Load, is_installed, write_tokenizer

from bench.meter import measured
from tests.support.chains import dns, issue

HERE = Path(__file__).resolve().parent
KINDS = {False: ("tasc", "exchange", "aiohttp", "httpx", "raw"), True: ("exchange", "aiohttp", "httpx", "raw")}
"""What is compared, plain and with TLS; the first is ours, the last is the limit of this machine."""
TOKENS = 128


def call_s(options: argparse.Namespace) -> float:
    """Seconds that the server takes for one call."""
    return float(options.ttft_ms + (TOKENS - 1) * options.itl_ms) / 1e3


def client(kind: str, port: int, options: argparse.Namespace) -> dict[str, Any]:
    """What one of our own client kinds measured of itself."""
    words = [sys.executable, str(HERE / "client.py"), kind, "--port", str(port)]
    words += [
        "--calls",
        str(options.calls),
        "--concurrency",
        str(options.concurrency),
        "--spread-s",
        str(call_s(options)),
    ]
    words += ["--tls", "--pin", options.pin] if options.tls else []
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def peer_ms(name: str, python: Path, port: int, options: argparse.Namespace) -> float:
    """CPU milliseconds of one call of a peer, all its processes, from two run lengths."""
    seen = []
    with tempfile.TemporaryDirectory(prefix="tasc-bench-") as folder:
        write_tokenizer(python, Path(folder))
        for calls in (options.calls // 4, options.calls):
            load = Load(f"http://127.0.0.1:{port}", calls, options.concurrency, TOKENS)
            used = measured(["taskset", "-c", "0", *PEERS[name](python, load, Path(folder))])
            assert used.code == 0, f"{name} ended with {used.code}"
            seen.append(used.cpu_s)
    return 1e3 * (seen[1] - seen[0]) / (options.calls - options.calls // 4)


def compare(port: int, options: argparse.Namespace) -> None:
    kinds = KINDS[options.tls]
    found = {kind: client(kind, port, options) for kind in kinds}
    ours, bare = (found[kind]["cpu_ms_per_call"] for kind in (kinds[0], "aiohttp"))
    for kind, said in found.items():
        error = said["ttft_error_us"]
        print(
            f"{kind:>10}: {said['cpu_ms_per_call']:6.2f} ms CPU per call, {said['calls_per_s']:7.1f} calls/s, "
            f"TTFT error p50 {error['p50'] / 1e3:.2f} ms, p99 {error['p99'] / 1e3:.2f} ms, "
            f"its core {said['core_share']:.0%}, the server's {said['server_core_share']:.0%}"
        )
    limit = found["raw"]
    print(
        f"G2 ours against a bare aiohttp loop: {ours / bare:.2f} (goal <= 1); "
        f"a protocol that only stamps: {limit['cpu_ms_per_call'] / bare:.2f}"
    )
    offered = options.concurrency / call_s(options)
    print(
        f"G3 achieved rate: {found[kinds[0]]['calls_per_s'] / offered:.1%} of {offered:.0f} calls/s (goal >= 99 %); "
        f"the protocol that only stamps: {limit['calls_per_s'] / offered:.1%}"
    )
    for name in PEERS:
        python: Path | None = getattr(options, name)
        if options.tls:
            continue
        if python is None or not is_installed(name, python):
            print(f"G2 {name}: not installed, not compared (give --{name} the Python that has it)")
            continue
        cost = peer_ms(name, python, port, options)
        print(f"G2 {name}: {cost:.2f} ms CPU per call; ours 1/{cost / ours:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=400)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--ttft-ms", type=float, default=100)
    parser.add_argument("--itl-ms", type=float, default=5)
    parser.add_argument("--tls", action="store_true")
    for name in PEERS:
        parser.add_argument(f"--{name}", type=Path, metavar="PYTHON", help=f"interpreter that has {name} installed")
    options = parser.parse_args()
    pace = ["--ttft-ms", str(options.ttft_ms), "--itl-ms", str(options.itl_ms)]
    core = str(max(os.sched_getaffinity(0)))
    command = [sys.executable, str(HERE / "server.py"), "--core", core, "--tokens", str(TOKENS), *pace]
    with ExitStack() as stack:
        if options.tls:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tasc-bench-")))
            command += with_certificate(folder, options)
        server = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        stack.callback(server.kill)
        assert server.stdout is not None
        compare(int(server.stdout.readline()), options)


def with_certificate(folder: Path, options: argparse.Namespace) -> list[str]:
    """Make the server's certificate; its options. ``options.pin`` becomes its pin."""
    made = issue("bench.example.com", None, san=[dns("bench.example.com")])
    (folder / "cert.pem").write_text(made.pem)
    (folder / "key.pem").write_text(made.key_pem)
    options.pin = made.spki_pin
    return ["--cert", str(folder / "cert.pem"), "--key", str(folder / "key.pem")]


if __name__ == "__main__":
    main()
