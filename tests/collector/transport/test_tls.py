"""TLS: which chains are taken, what the environment may not change, and what is proved when it fails."""

from __future__ import annotations

import asyncio
import hashlib
import re
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from tasc_collector.contracts.http_limits import HttpLimits
from tasc_collector.contracts.network_extension import NetworkExtension
from tasc_collector.contracts.scalars import timestamp_of_ms
from tasc_collector.errors import DispatchState, InputError
from tasc_collector.transport.codes import Code
from tasc_collector.transport.tls import TlsSettings, context_for, read_ca_file
from tests.support import chains
from tests.support.calls import Call, LabNetwork, call
from tests.support.raw_server import Peer, RawServer, answer


def play(peer: Peer) -> None:
    peer.read_request()
    peer.send(answer())
    peer.fin()


def der_of(issuer: chains.Issuer) -> bytes:
    return issuer.certificate.public_bytes(Encoding.DER)


UNREADABLE: dict[str, Callable[[bytes], bytes]] = {
    "version 6": lambda der: der.replace(bytes.fromhex("a003020102"), bytes.fromhex("a003020105"), 1),
    "a time that is none": lambda der: re.sub(rb"(\x17\x0d[0-9]{8})[0-9]", rb"\g<1>9", der, count=1),
}
"""What makes a certificate unreadable to the parser, and readable to OpenSSL."""


def secure_call(server: RawServer, *, host: str = chains.HOST, **changes: Any) -> Call:
    changes.setdefault("tls", TlsSettings(ca_pem=chains.root().pem))
    network = changes.pop("network", None) or LabNetwork(server.port)
    origin = f"https://{host}" if "." in host else host
    return asyncio.run(call(origin, network=network, **changes))


@pytest.mark.parametrize("name", sorted(chains.CASES))
def test_a_chain_is_taken_or_refused_before_byte_one(name: str, tmp_path: Path) -> None:
    """With memory buffers, because the lab's hosts include literals that no policy allows."""
    host, taken, make = chains.CASES[name]
    server = make().server_context(tmp_path)
    client_in, client_out, server_in, server_out = (ssl.MemoryBIO() for _ in range(4))
    client = context_for(TlsSettings(ca_pem=chains.root().pem)).wrap_bio(client_in, client_out, server_hostname=host)
    other = server.wrap_bio(server_in, server_out, server_side=True)

    def shake() -> bool:
        mine = theirs = False
        for _ in range(10):
            for side, outward, peer_in in ((client, client_out, server_in), (other, server_out, client_in)):
                try:
                    side.do_handshake()
                    mine, theirs = (True, theirs) if side is client else (mine, True)
                except ssl.SSLWantReadError:
                    pass
                except ssl.SSLError:
                    return False
                peer_in.write(outward.read())
            if mine and theirs:
                return True
        return False

    assert shake() is taken


def test_a_call_over_tls_completes_and_sends_the_name(tmp_path: Path) -> None:
    names: list[str | None] = []
    context = chains.good().server_context(tmp_path)
    context.sni_callback = lambda sock, name, ctx: names.append(name)
    with RawServer(play, tls=context) as server:
        network = LabNetwork(server.port)
        done = secure_call(server, network=network)
    assert (done.result.state, done.result.code, done.body) == (DispatchState.COMPLETED, None, b'{"ok":true}')
    assert names == [chains.HOST]
    assert network.connects == ["93.184.216.34"]
    marks = done.result.marks
    assert marks.connected < marks.secured < marks.leased < marks.request_started
    assert server.requests[0].startswith(b"POST /v1/completions HTTP/1.1\r\nhost: api.good.test\r\n")


@pytest.mark.parametrize("name", ["wrong host", "expired", "unknown ca", "common name only", "address for a name"])
def test_a_bad_chain_is_not_sent_to_and_not_leased(name: str, tmp_path: Path) -> None:
    _, _, make = chains.CASES[name]
    with RawServer(play, tls=make().server_context(tmp_path)) as server:
        done = secure_call(server)
    assert (done.result.state, done.result.code, done.leases) == (DispatchState.NOT_SENT, Code.TLS_FAILED, 0)
    assert server.requests == []


def test_a_port_that_speaks_plain_http_is_not_sent_to() -> None:
    with RawServer(lambda peer: peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as server:
        done = secure_call(server)
    assert (done.result.state, done.result.code) == (DispatchState.NOT_SENT, Code.TLS_FAILED)


def test_a_handshake_that_stalls_ends_by_its_own_deadline() -> None:
    with RawServer(Peer.hold) as server:
        done = secure_call(server, limits=HttpLimits(connect_timeout_ms=80))
    assert (done.result.state, done.result.code) == (DispatchState.NOT_SENT, Code.TLS_TIMEOUT)


def test_a_pinned_key_is_taken_without_chain_and_another_is_refused(tmp_path: Path) -> None:
    leaf = chains.issue("anything", None, san=[chains.dns("unrelated.test")])
    with RawServer(play, tls=chains.Chain(leaf).server_context(tmp_path)) as server:
        taken = secure_call(server, tls=TlsSettings(spki_pin=leaf.spki_pin))
        refused = secure_call(server, tls=TlsSettings(spki_pin=chains.root().spki_pin))
    assert taken.result.state is DispatchState.COMPLETED
    assert (refused.result.state, refused.result.code) == (DispatchState.NOT_SENT, Code.TLS_PIN_MISMATCH)
    assert len(server.requests) == 1


def test_an_expired_certificate_with_the_pinned_key_is_refused(tmp_path: Path) -> None:
    leaf = chains.issue("anything", None, starts_days=-60, ends_days=-1)
    with RawServer(play, tls=chains.Chain(leaf).server_context(tmp_path)) as server:
        done = secure_call(server, tls=TlsSettings(spki_pin=leaf.spki_pin))
    assert (done.result.state, done.result.code) == (DispatchState.NOT_SENT, Code.TLS_PIN_MISMATCH)


def test_a_short_key_is_refused_though_it_is_the_pinned_one(tmp_path: Path) -> None:
    leaf = chains.issue("anything", None, rsa_bits=1024)
    with RawServer(play, tls=chains.Chain(leaf).server_context(tmp_path)) as server:
        done = secure_call(server, tls=TlsSettings(spki_pin=leaf.spki_pin))
    assert (done.result.state, done.result.code) == (DispatchState.NOT_SENT, Code.TLS_PIN_MISMATCH)


@pytest.mark.parametrize("name", sorted(UNREADABLE))
def test_a_certificate_that_cannot_be_read_is_not_the_pinned_one(name: str, tmp_path: Path) -> None:
    """OpenSSL hands it over, and a stricter parser raises: that is a refusal, and no exception of the parser's."""
    leaf = chains.issue("anything", None)
    path = tmp_path / "server.pem"
    path.write_text(leaf.key_pem + ssl.DER_cert_to_PEM_cert(UNREADABLE[name](der_of(leaf))))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    with RawServer(play, tls=context) as server:
        done = secure_call(server, tls=TlsSettings(spki_pin=leaf.spki_pin))
    assert (done.result.state, done.result.code) == (DispatchState.NOT_SENT, Code.TLS_PIN_MISMATCH)
    assert server.requests == []


def test_ciphers_and_their_strength_are_named_here_and_not_by_a_file_of_the_machine() -> None:
    context = context_for(TlsSettings())
    assert context.security_level == 2
    ciphers = context.get_ciphers()
    assert {cipher["name"].partition("-")[0] for cipher in ciphers if cipher["protocol"] != "TLSv1.3"} <= {
        "ECDHE",
        "DHE",
    }
    assert min(cipher["strength_bits"] for cipher in ciphers) >= 128


def test_a_client_certificate_is_presented_where_there_is_one(tmp_path: Path) -> None:
    mine = chains.issue("collector", chains.root(), usage=chains.ExtendedKeyUsageOID.CLIENT_AUTH)
    path = tmp_path / "client.pem"
    path.write_text(mine.key_pem + mine.pem)
    context = chains.good().server_context(tmp_path, client_ca=chains.root().pem)
    with RawServer(play, tls=context) as server:
        with_it = secure_call(server, tls=TlsSettings(chains.root().pem, client_certificate=path))
        without = secure_call(server)
    assert with_it.result.state is DispatchState.COMPLETED
    assert without.result.code is not None
    assert len(server.requests) == 1


@pytest.mark.parametrize("no_proxy", [None, "*"])
def test_the_environment_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_proxy: str | None) -> None:
    keys, trap = tmp_path / "keys.log", tmp_path / "trap.pem"
    other = chains.issue("trap root", None, ca=True)
    trap.write_text(other.pem)
    monkeypatch.setenv("SSLKEYLOGFILE", str(keys))
    monkeypatch.setenv("SSL_CERT_FILE", str(trap))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        if no_proxy is not None:
            monkeypatch.setenv(name, no_proxy)
    context_for.cache_clear()
    trapped = chains.Chain(chains.issue("leaf", other, san=[chains.dns(chains.HOST)]))
    with RawServer(play, tls=trapped.server_context(tmp_path)) as server:
        refused = secure_call(server, tls=TlsSettings())
    with RawServer(play, tls=chains.good().server_context(tmp_path)) as server:
        taken = secure_call(server)
    assert refused.result.code is Code.TLS_FAILED
    assert taken.result.state is DispatchState.COMPLETED
    assert not keys.exists()


def test_a_ca_file_is_read_only_with_its_pinned_digest(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_text(chains.root().pem)
    digest = "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()
    assert read_ca_file(path, digest) == chains.root().pem
    path.write_text(chains.root().pem + "\n")
    with pytest.raises(InputError) as changed:
        read_ca_file(path, digest)
    assert changed.value.field == "caFile.digest"
    with pytest.raises(InputError) as missing:
        read_ca_file(tmp_path / "absent.pem", digest)
    assert missing.value.field == "caFile.path"


def extension(**networks: Any) -> NetworkExtension:
    value = {"cidrs": ["10.20.0.0/16"], "caFile": None, "spkiPin": None, **networks}
    return NetworkExtension.from_value(
        {
            "version": "tasc-network-extension-v1",
            "studyId": "study-1",
            "endpoints": [{"alias": "main", "privateNetworks": value, "clientCertificate": None}],
            "issuedAt": timestamp_of_ms(0),
            "expiresAt": timestamp_of_ms(4_000_000_000_000),
        }
    ).record


@pytest.mark.parametrize(
    ("answers", "code"),
    [
        (["10.20.1.2"], None),
        (["10.21.1.2"], Code.ADDRESS_REFUSED),
        (["93.184.216.34"], Code.ADDRESS_REFUSED),
        (["10.20.1.2", "93.184.216.34"], Code.ADDRESS_REFUSED),
        (["169.254.169.254"], Code.ADDRESS_REFUSED),
        (["127.0.0.1"], Code.ADDRESS_REFUSED),
    ],
)
def test_a_private_endpoint_is_reached_in_its_own_networks_only(
    answers: list[str], code: Code | None, tmp_path: Path
) -> None:
    with RawServer(play, tls=chains.good().server_context(tmp_path)) as server:
        network = LabNetwork(server.port, [answers])
        done = secure_call(server, network=network, extension=extension())
    assert done.result.code is code
    assert network.connects == ([] if code else ["10.20.1.2"])
