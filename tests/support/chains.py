"""Certificate chains made at test time: a root, leaves, and the table of chains that a strict client must refuse or
take.
"""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
import ssl
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
DAY = datetime.timedelta(days=1)
HOST = "api.good.test"


@dataclass(frozen=True)
class Issuer:
    """A certificate with its key, able to sign others."""

    certificate: x509.Certificate
    key: Key

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    @property
    def key_pem(self) -> str:
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode()

    @property
    def spki_pin(self) -> str:
        spki = self.key.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return "sha256:" + hashlib.sha256(spki).hexdigest()


def dns(name: str) -> x509.GeneralName:
    return x509.DNSName(name)


def ip(text: str) -> x509.GeneralName:
    return x509.IPAddress(ipaddress.ip_address(text))


def issue(
    subject: str,
    issuer: Issuer | None,
    *,
    san: Sequence[x509.GeneralName] | None = None,
    ca: bool = False,
    path_length: int | None = None,
    starts_days: int = -1,
    ends_days: int = 30,
    usage: x509.ObjectIdentifier | None = ExtendedKeyUsageOID.SERVER_AUTH,
    permitted: str | None = None,
    unknown_critical: bool = False,
    authority_key: bool = True,
    rsa_bits: int | None = None,
) -> Issuer:
    """Make a certificate; without an issuer it signs itself."""
    now = datetime.datetime.now(datetime.UTC)
    key: Key = rsa.generate_private_key(65537, rsa_bits) if rsa_bits else ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer.certificate.subject if issuer else name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + starts_days * DAY)
        .not_valid_after(now + ends_days * DAY)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=path_length), critical=True)
        .add_extension(x509.KeyUsage(True, False, False, False, False, ca, ca, False, False), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    if issuer is not None and authority_key:
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.key.public_key())
        builder = builder.add_extension(identifier, critical=False)
    if san is not None:
        builder = builder.add_extension(x509.SubjectAlternativeName(san), critical=False)
    if usage is not None and not ca:
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    if permitted is not None:
        builder = builder.add_extension(x509.NameConstraints([x509.DNSName(permitted)], None), critical=True)
    if unknown_critical:
        builder = builder.add_extension(
            x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4.5"), b"\x05\x00"), critical=True
        )
    return Issuer(builder.sign(issuer.key if issuer else key, hashes.SHA256()), key)


@cache
def root() -> Issuer:
    """The root of this test run."""
    return issue("test root", None, ca=True)


@dataclass(frozen=True)
class Chain:
    """A server's side: its certificate and key, and what it sends along."""

    leaf: Issuer
    sent: tuple[Issuer, ...] = ()
    newest: ssl.TLSVersion | None = None
    oldest: ssl.TLSVersion | None = None

    def server_context(self, folder: Path, *, client_ca: str | None = None) -> ssl.SSLContext:
        """A server context that presents this chain."""
        path = folder / f"{id(self)}.pem"
        path.write_text(self.leaf.key_pem + self.leaf.pem + "".join(issuer.pem for issuer in self.sent))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # an old server is what one case needs
            context.set_ciphers("ALL:@SECLEVEL=0")
            context.minimum_version = self.oldest or ssl.TLSVersion.TLSv1
            if self.newest is not None:
                context.maximum_version = self.newest
        context.load_cert_chain(path)
        if client_ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=client_ca)
        return context


def good(host: str = HOST, *, sent: tuple[Issuer, ...] = ()) -> Chain:
    """A chain that is fine for ``host``."""
    return Chain(issue("leaf", root(), san=[dns(host)]), sent)


def _through(intermediate: Issuer, *also: Issuer) -> Chain:
    return Chain(issue("leaf", intermediate, san=[dns(HOST)]), (intermediate, *also))


def _intermediate(**changes: object) -> Issuer:
    return issue("intermediate", root(), ca=True, **changes)  # type: ignore[arg-type]  # keywords of issue


def _leaf(*names: x509.GeneralName, **changes: object) -> Callable[[], Chain]:
    return lambda: Chain(issue("leaf", root(), san=list(names), **changes))  # type: ignore[arg-type]  # keywords of issue


def _pathlen() -> Chain:
    first = _intermediate(path_length=0)
    second = issue("second", first, ca=True)
    return _through(second, first)


def _missing() -> Chain:
    return Chain(issue("leaf", _intermediate(), san=[dns(HOST)]))


def _leaf_as_ca() -> Chain:
    return _through(issue("no ca", root(), san=[dns("x.test")]))


def _same_name() -> Chain:
    forged = issue("test root", None, ca=True)
    return Chain(issue("leaf", forged, san=[dns(HOST)], authority_key=False))


V11, V12, V13 = ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3

CASES: dict[str, tuple[str, bool, Callable[[], Chain]]] = {
    "exact name": (HOST, True, _leaf(dns(HOST))),
    "name in another case": (HOST, True, _leaf(dns("API.Good.TEST"))),
    "second name": (HOST, True, _leaf(dns("x.test"), dns(HOST))),
    "wildcard of one label": (HOST, True, _leaf(dns("*.good.test"))),
    "wildcard over two labels": ("a.b.good.test", False, _leaf(dns("*.good.test"))),
    "wildcard at the apex": ("good.test", False, _leaf(dns("*.good.test"))),
    "partial wildcard": ("foo.good.test", False, _leaf(dns("f*.good.test"))),
    "wildcard in the middle": (HOST, False, _leaf(dns("api.*.test"))),
    "wildcard under one label": ("good.test", False, _leaf(dns("*.test"))),
    "two wildcards": ("a.b.good.test", False, _leaf(dns("*.*.good.test"))),
    "bare wildcard": (HOST, False, _leaf(dns("*"))),
    "common name only": (HOST, False, lambda: Chain(issue(HOST, root()))),
    "common name, other alternative name": (HOST, False, lambda: Chain(issue(HOST, root(), san=[dns("other.test")]))),
    "wrong host": (HOST, False, _leaf(dns("other.test"))),
    "suffix": ("good.test", False, _leaf(dns("evilgood.test"))),
    "prefix": (HOST, False, _leaf(dns(HOST + ".evil.test"))),
    "trailing dot": (HOST, False, _leaf(dns(HOST + "."))),
    "nul in the name": (HOST, False, _leaf(dns(HOST + "\x00.evil.test"))),
    "address as a name": ("127.0.0.1", False, _leaf(dns("127.0.0.1"))),
    "address": ("127.0.0.1", True, _leaf(ip("127.0.0.1"))),
    "address of IPv6": ("::1", True, _leaf(ip("::1"))),
    "another address": ("127.0.0.1", False, _leaf(ip("127.0.0.2"))),
    "common name is the address": ("127.0.0.1", False, lambda: Chain(issue("127.0.0.1", root()))),
    "empty name": (HOST, False, _leaf(dns(""))),
    "leading dot": (HOST, False, _leaf(dns(".good.test"))),
    "address for a name": (HOST, False, _leaf(ip("127.0.0.1"))),
    "a-label": ("xn--bcher-kva.test", True, _leaf(dns("xn--bcher-kva.test"))),
    "wildcard a-label": ("xn--bcher-kva.test", False, _leaf(dns("xn--*.test"))),
    "uri only": (HOST, False, _leaf(x509.UniformResourceIdentifier("https://" + HOST))),
    "mail only": (HOST, False, _leaf(x509.RFC822Name("a@" + HOST))),
    "expired": (HOST, False, _leaf(dns(HOST), starts_days=-60, ends_days=-1)),
    "not yet valid": (HOST, False, _leaf(dns(HOST), starts_days=1)),
    "self-signed": (HOST, False, lambda: Chain(issue(HOST, None, san=[dns(HOST)]))),
    "unknown ca": (HOST, False, lambda: Chain(issue("leaf", issue("other root", None, ca=True), san=[dns(HOST)]))),
    "forged ca of the same name": (HOST, False, _same_name),
    "intermediate": (HOST, True, lambda: _through(_intermediate(path_length=0))),
    "missing intermediate": (HOST, False, _missing),
    "issuer is no ca": (HOST, False, _leaf_as_ca),
    "path too long": (HOST, False, _pathlen),
    "intermediate is no ca": (HOST, False, lambda: _through(issue("intermediate", root()))),
    "intermediate not yet valid": (HOST, False, lambda: _through(_intermediate(starts_days=1))),
    "intermediate of rsa 1024": (HOST, False, lambda: _through(_intermediate(rsa_bits=1024))),
    "name constraints that hold": (HOST, True, lambda: _through(_intermediate(permitted="good.test"))),
    "name constraints": (HOST, False, lambda: _through(_intermediate(permitted="allowed.test"))),
    "expired intermediate": (HOST, False, lambda: _through(_intermediate(starts_days=-60, ends_days=-1))),
    "ends in years": (HOST, True, _leaf(dns(HOST), ends_days=3_000)),
    "code signing": (HOST, False, _leaf(dns(HOST), usage=ExtendedKeyUsageOID.CODE_SIGNING)),
    "client certificate": (HOST, False, _leaf(dns(HOST), usage=ExtendedKeyUsageOID.CLIENT_AUTH)),
    "no extended usage": (HOST, True, _leaf(dns(HOST), usage=None)),
    "unknown critical extension": (HOST, False, _leaf(dns(HOST), unknown_critical=True)),
    "rsa 1024": (HOST, False, _leaf(dns(HOST), rsa_bits=1024)),
    "rsa 2048": (HOST, True, _leaf(dns(HOST), rsa_bits=2048)),
    "no authority key identifier": (HOST, False, _leaf(dns(HOST), authority_key=False)),
    "tls 1.0": (HOST, False, lambda: Chain(good().leaf, newest=ssl.TLSVersion.TLSv1)),
    "tls 1.1": (HOST, False, lambda: Chain(good().leaf, newest=V11)),
    "tls 1.2": (HOST, True, lambda: Chain(good().leaf, newest=V12)),
    "tls 1.3": (HOST, True, lambda: Chain(good().leaf, oldest=V13)),
}
"""Name of the case -> host that is asked for, whether it must be taken, and the chain."""
