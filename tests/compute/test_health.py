"""Asking an engine: bounded in time and bytes, no redirects, no proxies."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tasc_compute import health
from tasc_compute.contracts import EngineId
from tasc_compute.engines import ENGINES

Serve = Callable[[bytes], int]


@pytest.fixture
def serve() -> Iterator[Callable[..., int]]:
    """Answer one connection with raw bytes, then hold it open or close it."""
    done = threading.Event()
    threads = []

    def start(data: bytes, *, drip: bool = False, close: bool = True) -> int:
        listener = socket.create_server(("127.0.0.1", 0))

        def run() -> None:
            with listener:
                listener.settimeout(30)
                connection, _ = listener.accept()
                with connection:
                    connection.recv(65536)
                    try:
                        for piece in [data[i : i + 1] for i in range(len(data))] if drip else [data]:
                            connection.sendall(piece)
                            if drip and done.wait(0.05):
                                return
                    except OSError:
                        return
                    if not close:
                        done.wait(30)

        thread = threading.Thread(target=run)
        thread.start()
        threads.append(thread)
        port: int = listener.getsockname()[1]
        return port

    yield start
    done.set()
    for thread in threads:
        thread.join(60)


def test_a_plain_answer(serve):
    assert health.ask(serve(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"), "/health", 5000) == health.Answer(
        200, b"ok"
    )


def test_a_chunked_answer(serve):
    data = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
    assert health.ask(serve(data), "/health", 5000) == health.Answer(200, b"ok")


@pytest.mark.parametrize("data", [b"", b"hello\r\n", b"HTTP/1.1 abc OK\r\n\r\n", b"\xff" * 100, b"HTTP/9 200\r\n\r\n"])
def test_what_is_no_answer_is_none(serve, data):
    assert health.ask(serve(data), "/health", 5000) is None


@pytest.mark.parametrize("status", [b"302 Found", b"204 No Content", b"503 Service Unavailable", b"500 X"])
def test_only_200_is_alive(serve, status):
    port = serve(b"HTTP/1.1 " + status + b"\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n")
    assert not health.is_alive(port, ENGINES[EngineId.LLAMACPP].probes)


def test_an_answer_that_drips_is_over_at_the_time_out(serve):
    """A time-out per read would wait for ever on one byte at a time."""
    port = serve(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b"x" * 1000, drip=True)
    started = time.monotonic()
    assert health.ask(port, "/health", 400) is None
    assert time.monotonic() - started < 5


def test_a_silent_server_is_over_at_the_time_out(serve):
    assert health.ask(serve(b"", close=False), "/health", 300) is None


def test_a_wait_can_be_given_up(serve):
    """A one-token completion may take a minute; a cancel must not wait for it."""
    asked = iter([False, True])
    assert health.ask(serve(b"", close=False), "/health", 30_000, give_up=lambda: next(asked)) is None


def test_a_huge_answer_is_cut(serve):
    port = serve(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1_000_000)
    answer = health.ask(port, "/health", 5000)
    assert answer is not None
    assert answer.status == 200
    assert len(answer.body) <= 80 * 1024


def test_no_proxy_is_asked(serve, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    assert health.ask(serve(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), "/health", 5000) == health.Answer(
        200, b""
    )


def test_nobody_there_is_none(free_port):
    assert health.ask(free_port(), "/health", 500) is None


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"data":{}}', b'{"data":[1,{"id":2}]}', b"[" * 30_000])
def test_a_strange_model_list_lists_nothing(serve, body):
    port = serve(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    assert health.served_models(port) == frozenset()


def test_context_is_read_from_either_servers_field(serve):
    llama = b'{"data":[{"id":"a","meta":{"n_ctx":2048}}]}'
    vllm = b'{"data":[{"id":"a","max_model_len":4096}]}'
    for body, context in ((llama, 2048), (vllm, 4096)):
        port = serve(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        assert health.context_per_request(port) == context


def test_a_port_is_free_only_if_nobody_listens_anywhere(free_port):
    port = free_port()
    assert health.port_is_free(port)
    with socket.create_server(("127.0.0.1", port)):
        assert not health.port_is_free(port)
    with socket.create_server(("", port)):
        assert not health.port_is_free(port)
    assert health.port_is_free(port)
