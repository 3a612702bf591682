"""This machine as a world for a collector: real files, real sockets, and a counting server on loopback.

Run as a program it is the collector process that a harness kills:
``python -m tests.support.socket_world FOLDER PORT EXECUTIONS CONCURRENCY``.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Self

from tasc_collector.journal import OsFileSystem
from tests.support.toy_runner import ToyRunner


class CountingServer:
    """Counts what reaches it: the judge of a crash test. Runs in a thread of its own; a context manager."""

    def __init__(self) -> None:
        self.sent: Counter[str] = Counter()
        self.acknowledged: set[str] = set()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        await server.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            word, _, execution = (await reader.readline()).decode().rstrip("\n").partition(" ")
            if word == "call" and execution:
                self.sent[execution] += 1
            elif word == "accepted":
                self.acknowledged.add(execution)
            writer.write(b"ok\n")
            await writer.drain()
        except ConnectionError:
            return  # the collector died
        finally:
            writer.close()


class SocketWorld:
    """A collector's view of it."""

    def __init__(self, folder: Path, port: int) -> None:
        self.fs, self.folder, self._port = OsFileSystem(), folder, port
        self._open: dict[str, tuple[asyncio.StreamReader, asyncio.StreamWriter]] = {}

    async def collect(self, runner: ToyRunner, executions: int) -> None:
        """Run a collector and close what it left open."""
        try:
            await runner(self, executions)
        finally:
            for _, writer in self._open.values():
                writer.close()
                await writer.wait_closed()

    async def connect(self, execution: str) -> None:
        self._open[execution] = await asyncio.open_connection("127.0.0.1", self._port)

    async def send(self, execution: str, *, journal_failed: bool) -> None:
        await self._say(execution, f"call {execution}\n")
        if journal_failed:
            raise AssertionError("sent after the journal failed")

    async def acknowledge(self, execution: str) -> None:
        await self.connect(execution)
        await self._say(execution, f"accepted {execution}\n")

    async def _say(self, execution: str, line: str) -> None:
        reader, writer = self._open.pop(execution)
        try:
            writer.write(line.encode())
            await reader.readline()
        finally:
            writer.close()
            await writer.wait_closed()


def main() -> None:
    folder, port, executions, concurrency = sys.argv[1:5]
    world, runner = SocketWorld(Path(folder), int(port)), ToyRunner(concurrency=int(concurrency))
    asyncio.run(world.collect(runner, int(executions)))


if __name__ == "__main__":
    main()
