"""The TLS option presents exactly the chain it was given, and transport faults act below it."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import pytest

from tasc_collector.contract_servers import Behaviour, ContractServer, TlsFiles
from tasc_collector.errors import InputError
from tests.support.chains import CASES, HOST, Chain, good, root
from tests.support.wire_client import connect, drain, request_bytes


def files(folder: Path, chain: Chain) -> TlsFiles:
    certificate, key = folder / "chain.pem", folder / "key.pem"
    certificate.write_text(chain.leaf.pem + "".join(issuer.pem for issuer in chain.sent))
    key.write_text(chain.leaf.key_pem)
    return TlsFiles(certificate, key)


def client() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=root().pem)
    context.hostname_checks_common_name = False
    return context


def test_a_request_over_tls_is_answered_and_counted(tmp_path: Path) -> None:
    with ContractServer("vllm", tls=files(tmp_path, good())) as server:
        with connect(server.port, context=client(), name=HOST) as sock:
            sock.sendall(request_bytes("POST", "/v1/completions", {"prompt": "ash", "stream": True}))
            answer = drain(sock)
        assert answer.events[-1] == "[DONE]"
        assert (server.origin[:8], server.ledger.inference_calls) == ("https://", 1)


@pytest.mark.parametrize("case", ["wrong host", "expired", "unknown ca", "address for a name", "common name only"])
def test_a_client_that_checks_refuses_the_bad_chains(case: str, tmp_path: Path) -> None:
    host, _, make = CASES[case]
    with ContractServer("vllm", tls=files(tmp_path, make())) as server:
        with pytest.raises(ssl.SSLCertVerificationError):
            connect(server.port, context=client(), name=host)
        assert server.ledger.requests == 0


@pytest.mark.parametrize("case", ["address", "intermediate"])
def test_a_client_that_checks_takes_the_good_chains(case: str, tmp_path: Path) -> None:
    host, _, make = CASES[case]
    with (
        ContractServer("vllm", tls=files(tmp_path, make())) as server,
        connect(server.port, context=client(), name=host) as sock,
    ):
        sock.sendall(request_bytes("GET", "/health"))
        assert drain(sock).status == 200


def test_a_stream_reset_under_tls_is_a_reset_of_the_connection(tmp_path: Path) -> None:
    behaviour = Behaviour(fault="reset-mid-body")
    with ContractServer("vllm", tls=files(tmp_path, good()), behaviour=behaviour) as server:
        with connect(server.port, context=client(), name=HOST) as sock:
            sock.sendall(request_bytes("POST", "/v1/completions", {"prompt": "ash", "stream": True}))
            with socket.socket(fileno=sock.detach()) as below:  # the ssl module reports a reset as an end of file
                below.settimeout(5)
                assert drain(below).end == "reset"


def test_files_that_cannot_be_used_are_refused_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    with pytest.raises(InputError, match="name a PEM chain"):
        ContractServer("vllm", tls=TlsFiles(tmp_path / "empty", tmp_path / "empty"))
