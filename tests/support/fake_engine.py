"""An engine that does what a test tells it to.

Started as a real process by the real launcher. Its behaviour is JSON in the environment variable ``FAKE_ENGINE``:

| key | effect |
|---|---|
| ``print`` | text for the log, first |
| ``exit_code`` | ends at once with this code |
| ``kill_self`` | ends at once by this signal |
| ``ready_after`` | health checks that are answered 503 before the first 200 (default 0) |
| ``never_ready`` | answers 503 for ever |
| ``exit_after`` | ends with code 0 after this many health checks |
| ``ignore_term`` | SIGTERM has no effect |
| ``worker`` | a child that outlives the leader: in its "group", with its environment "wiped", or in a "session" |
| ``worker_pid_file`` | where the child's pid is written |
| ``port_offset`` | listens on port + this |
| ``serves_name`` | another served name than the one asked for |
| ``completion_status`` | status of ``/v1/completions`` |
| ``count_file`` | one line is added per request that generates |
| ``device_locks`` | folder: takes a lock per visible device there, and writes ``violations`` if another engine has it |
| ``redirect`` | health answers 302 |
| ``device_node`` | a file that stands for its device: health answers 503 while it is absent |
"""

import fcntl
import http.server
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

WORKER = (
    "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN if {ignore} else signal.SIG_DFL); time.sleep(600)"
)


def option(*names: str) -> str | None:
    for name in names:
        if name in sys.argv:
            return sys.argv[sys.argv.index(name) + 1]
    return None


def start_worker(told: dict[str, object]) -> None:
    kind = told["worker"]
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", WORKER.format(ignore=bool(told.get("ignore_term")))],
        env={} if kind == "wiped" else None,
        start_new_session=kind == "session",
    )
    child.returncode = 0  # never waited for: it is meant to outlive us
    if "worker_pid_file" in told:
        Path(str(told["worker_pid_file"])).write_text(str(child.pid))


class Handler(http.server.BaseHTTPRequestHandler):
    told: ClassVar[dict[str, object]] = {}
    checks = 0

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, status: int, body: object, **headers: str) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        if self.path == "/health" or self.path == "/model_info":
            Handler.checks += 1
            if Handler.checks > int(str(self.told.get("exit_after", 1 << 30))):
                os._exit(0)
            if self.told.get("redirect"):
                self.answer(302, {}, Location="/elsewhere")
                return
            node = self.told.get("device_node")
            late = self.told.get("never_ready") or Handler.checks <= int(str(self.told.get("ready_after", 0)))
            late = late or (node is not None and not Path(str(node)).exists())
            self.answer(503 if late else 200, {"status": "loading" if late else "ok"})
        elif self.path == "/v1/models":
            name = self.told.get("serves_name") or option("--alias", "--served-model-name", "--model-name") or "none"
            self.answer(200, {"data": [{"id": name, "meta": {"n_ctx": int(option("--ctx-size") or 0)}}]})
        else:
            self.answer(404, {})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if "count_file" in self.told:
            with Path(str(self.told["count_file"])).open("a") as stream:
                stream.write("1\n")
        self.answer(int(str(self.told.get("completion_status", 200))), {"choices": [{"text": ""}]})


def hold_devices(folder: Path) -> list[int]:
    """The oracle of the race tests: the kernel says whether two engines ever had one device."""
    held = []
    for device in os.environ["CUDA_VISIBLE_DEVICES"].split(","):
        descriptor = os.open(folder / device, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            (folder / "violations").write_text(device)
            sys.exit(99)
        held.append(descriptor)
    return held


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """A client that left is no line of an engine's log."""


def main() -> None:
    told = json.loads(os.environ.get("FAKE_ENGINE", "{}"))
    held = hold_devices(Path(told["device_locks"])) if "device_locks" in told else []
    assert all(descriptor > 2 for descriptor in held)
    if "print" in told:
        sys.stdout.write(told["print"])
        sys.stdout.flush()
    if told.get("ignore_term"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "worker" in told:
        start_worker(told)
    if "kill_self" in told:
        os.kill(os.getpid(), getattr(signal, told["kill_self"]))
    if "exit_code" in told:
        sys.exit(told["exit_code"])
    Handler.told = told
    port = int(option("--port") or 0) + told.get("port_offset", 0)
    Server(("127.0.0.1", port), Handler).serve_forever()


main()
