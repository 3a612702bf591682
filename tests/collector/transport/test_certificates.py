"""What is read from certificates: the pinned key's own bytes, names and dates, and nothing that a peer can break."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tasc_collector.transport.certificates import authorities_of, facts_of, is_pinned, public_key_info
from tests.support import chains

NOW = datetime.now(UTC)
SOONER = NOW - timedelta(hours=1)
RSA, RSA_PSS = bytes.fromhex("06092a864886f70d010101"), bytes.fromhex("06092a864886f70d01010a")


def der_of(issuer: chains.Issuer) -> bytes:
    return issuer.certificate.public_bytes(Encoding.DER)


@pytest.mark.parametrize("rsa_bits", [None, 2048])
def test_the_key_is_what_the_certificate_holds(rsa_bits: int | None) -> None:
    leaf = chains.issue("leaf", chains.root(), rsa_bits=rsa_bits)
    spki = leaf.key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert public_key_info(leaf.certificate.tbs_certificate_bytes) == spki
    assert is_pinned(der_of(leaf), leaf.spki_pin, NOW)
    assert not is_pinned(der_of(leaf), chains.root().spki_pin, NOW)


def test_a_key_that_a_parser_would_write_otherwise_is_pinned_by_its_own_bytes() -> None:
    """A key of RSASSA-PSS comes back from a parser as one of RSA, whose digest is not the pinned one."""
    leaf = chains.issue("leaf", chains.root(), rsa_bits=2048)
    held = leaf.certificate.tbs_certificate_bytes
    assert held.count(RSA) == 1
    spki = leaf.key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert public_key_info(held.replace(RSA, RSA_PSS)) == spki.replace(RSA, RSA_PSS)


def test_a_pinned_certificate_is_within_its_dates() -> None:
    leaf = chains.issue("leaf", chains.root(), starts_days=-1, ends_days=30)
    good = [is_pinned(der_of(leaf), leaf.spki_pin, NOW + timedelta(days=days)) for days in (-2, 0, 29, 31)]
    assert good == [False, True, True, False]


def test_names_and_end_are_told() -> None:
    facts = facts_of(der_of(chains.issue("gpu.test", chains.root(), ends_days=30)))
    assert facts is not None
    assert (facts.subject, facts.issuer, facts.days_left(SOONER)) == ("gpu.test", "test root", 30)
    both = chains.root().pem + chains.issue("second root", None, ca=True, ends_days=5).pem
    assert [(ca.subject, ca.days_left(SOONER)) for ca in authorities_of(both)] == [
        ("test root", 30),
        ("second root", 5),
    ]


def test_a_name_shows_no_control_character_and_is_cut() -> None:
    facts = facts_of(der_of(chains.issue("a\x1b[2J\nb" + "x" * 55, None)))
    assert facts is not None
    assert facts.subject == "a?[2J?b" + "x" * 55


def test_no_cut_or_changed_certificate_raises_or_is_taken_for_the_pinned_one_without_its_key() -> None:
    leaf = chains.issue("leaf", chains.root())
    der, spki = der_of(leaf), public_key_info(leaf.certificate.tbs_certificate_bytes)
    for at in range(0, len(der), 3):
        for data in (der[:at], der[:at] + bytes([der[at] ^ 0x41]) + der[at + 1 :]):
            facts_of(data)
            assert spki in data or not is_pinned(data, leaf.spki_pin, NOW)
    for broken in (None, b"", b"\x30", b"\x30\x84\xff\xff\xff\xff", b"\x30\x80\x00\x00"):
        assert facts_of(broken) is None
        assert not is_pinned(broken, leaf.spki_pin, NOW)
    assert authorities_of("no PEM") == authorities_of("\u00fc") == ()


@pytest.mark.parametrize(
    "tbs", [b"", b"\x30\x00", b"\x30\x03\x02\x01\x01", b"\x31\x00", b"\x30\x05\xa0\x09\x02\x01\x02"]
)
def test_another_structure_has_no_key(tbs: bytes) -> None:
    with pytest.raises(ValueError):
        public_key_info(tbs)
