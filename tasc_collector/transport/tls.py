"""TLS by our own context over our own socket; nothing of the environment is read.

Rules:

1. TLS 1.2 or newer, ALPN ``http/1.1`` only, no session reuse, no compression, no key log: the context is made by hand
   and not by ``ssl.create_default_context``, which obeys ``SSLKEYLOGFILE``. The ciphers and their security level are named
   here too, because some builds take them from the file that ``OPENSSL_CONF`` names.
2. The CA set is certifi's file, or the one file of the operator's extension, whose bytes must have the pinned digest.
   ``SSL_CERT_FILE`` and ``SSL_CERT_DIR`` change nothing.
3. Names are checked on subject alternative names only, never on the common name; X.509 is checked strictly (RFC 5280).
4. With a key pin neither chain nor name is checked: the server's public key has exactly the pinned SHA-256, and its
   certificate is within its dates (``certificates``).
5. Why a handshake failed is kept as one of our own words, for an operator's check; OpenSSL's text may hold the name.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Final

from tasc_collector.errors import InputError
from tasc_collector.limits import READ_BYTES
from tasc_collector.transport.certificates import is_pinned
from tasc_collector.transport.codes import Code
from tasc_collector.transport.resolver import not_sent

_CA_FILE_MAX = 4 * 1024 * 1024
_CIPHERS: Final = "@SECLEVEL=2:ECDH+AESGCM:ECDH+CHACHA20:ECDH+AES:DHE+AES:!aNULL:!eNULL:!aDSS:!SHA1:!AESCCM"
"""CPython's own default list (3.10 and newer): forward secrecy, and at least 112 bits in every key and signature."""
_VERIFY_WORDS: Final[Mapping[int, str]] = {
    9: "the certificate is not yet valid",
    10: "the certificate has expired",
    18: "the certificate is self-signed",
    19: "the chain ends in a root that is not trusted",
    20: "the issuer is not trusted, or an intermediate certificate is missing",
    21: "the issuer is not trusted, or an intermediate certificate is missing",
    26: "the certificate is not for a server",
    62: "the certificate is for another name",
    64: "the certificate is for another address",
    66: "a key of the chain is too short",
    68: "a signature of the chain is too weak",
}
"""OpenSSL's verification errors (``x509_vfy.h``) that an operator can act on."""


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """How one endpoint's certificate is trusted.

    Args:
        ca_pem: PEM text of the CA set, or None for the public one.
        spki_pin: ``sha256:`` digest of the server's public key, or None.
        client_certificate: PEM file with certificate and key, or None.
    """

    ca_pem: str | None = None
    spki_pin: str | None = None
    client_certificate: Path | None = None


def read_ca_file(path: Path, digest: str) -> str:
    """The PEM text of an operator's CA file.

    Raises:
        InputError: the file cannot be read, is too large, or its bytes are not the pinned ones.
    """
    where, way_out = "network extension", "restore the file, or let the operator issue the extension again"
    try:
        with path.open("rb") as file:
            data = file.read(_CA_FILE_MAX + 1)
    except OSError:
        raise InputError("the CA file cannot be read", where=where, field="caFile.path", way_out=way_out) from None
    if len(data) > _CA_FILE_MAX or not hmac.compare_digest("sha256:" + hashlib.sha256(data).hexdigest(), digest):
        raise InputError("the CA file is not the pinned one", where=where, field="caFile.digest", way_out=way_out)
    try:
        return data.decode("ascii")
    except UnicodeDecodeError:
        raise InputError("the CA file is not PEM", where=where, field="caFile.path", way_out=way_out) from None


@lru_cache(maxsize=64)
def context_for(settings: TlsSettings) -> ssl.SSLContext:
    """The context of one endpoint, made once per process: loading the public CA set costs 20 ms.

    Raises:
        InputError: the CA set or the client certificate cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    context.hostname_checks_common_name = False
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    if settings.spki_pin is not None:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    try:
        if settings.spki_pin is None and settings.ca_pem is not None:
            context.load_verify_locations(cadata=settings.ca_pem)
        elif settings.spki_pin is None:
            import certifi  # with what it loads it takes longer than all of this module; loopback endpoints need none of it

            context.load_verify_locations(cafile=certifi.where())
        if settings.client_certificate is not None:
            context.load_cert_chain(settings.client_certificate, password=_no_password)
    except (ssl.SSLError, OSError, ValueError):
        raise InputError(
            "the CA set or client certificate cannot be used",
            field="privateNetworks",
            rule="PEM certificates, and a key without pass phrase",
            way_out="check the files with `openssl x509 -in FILE -noout`",
        ) from None
    return context


def _no_password() -> str:
    return ""


class TlsChannel:
    """One TLS session over a socket that somebody else reads and writes: ciphertext in, plain text out, and back."""

    __slots__ = ("_in", "_object", "_out", "_pin", "closed", "why")

    def __init__(self, settings: TlsSettings, host: str) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context_for(settings).wrap_bio(self._in, self._out, server_hostname=host)
        self._pin = settings.spki_pin
        self.closed = False
        """True once the peer said in TLS that it is done."""
        self.why: str | None = None
        """Why its certificate was refused, in our words (rule 5)."""

    async def handshake(self, sock: socket.socket) -> None:
        """Shake hands; no application byte is involved.

        Raises:
            TransportError: ``tls-failed`` or ``tls-pin-mismatch``, not sent.
        """
        loop = asyncio.get_running_loop()
        while True:
            try:
                self._object.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                done = False
            except (ssl.SSLError, ssl.CertificateError, ValueError) as error:
                if isinstance(error, ssl.SSLCertVerificationError):
                    self.why = _VERIFY_WORDS.get(
                        error.verify_code, "the certificate does not pass strict X.509 (RFC 5280)"
                    )
                raise not_sent(Code.TLS_FAILED) from None
            try:
                if self._out.pending:
                    await loop.sock_sendall(sock, self._out.read())
                if done:
                    break
                data = await loop.sock_recv(sock, READ_BYTES)
            except OSError:
                raise not_sent(Code.TLS_FAILED) from None
            if not data:
                raise not_sent(Code.TLS_FAILED)
            self._in.write(data)
        if self._object.selected_alpn_protocol() not in {None, "http/1.1"}:
            raise not_sent(Code.TLS_FAILED)
        if self._pin is not None and not is_pinned(self.certificate(), self._pin, datetime.now(UTC)):
            raise not_sent(Code.TLS_PIN_MISMATCH)

    def certificate(self) -> bytes | None:
        """The server's certificate, DER."""
        return self._object.getpeercert(binary_form=True)

    def encrypt(self, data: bytes) -> bytes:
        """Ciphertext of application bytes."""
        self._object.write(data)
        return self._out.read()

    def decrypt(self, data: bytes) -> bytes:
        """Application bytes in ciphertext that came; empty where a record is not complete or carries none.

        Raises:
            ssl.SSLError: the ciphertext is bad.
        """
        self._in.write(data)
        parts: list[bytes] = []
        while not self.closed:
            try:
                piece = self._object.read(READ_BYTES)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                piece = b""
            if not piece:
                self.closed = True
                break
            parts.append(piece)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def goodbye(self) -> bytes:
        """Ciphertext that says that we will send nothing more; a bare close would be taken for an attack."""
        with contextlib.suppress(ssl.SSLError):
            self._object.unwrap()
        return self._out.read()

    def pending(self) -> bytes:
        """Ciphertext that TLS itself wants to send (a key update's answer), never application bytes."""
        return self._out.read() if self._out.pending else b""
