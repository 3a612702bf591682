"""Ed25519 keys and signatures over canonical bytes."""

from __future__ import annotations

import base64
import copy
import pickle

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from tasc_collector.errors import SignatureError
from tasc_collector.signing import PublicKey, SigningKey, decode_b64u, encode_b64u, is_signed, verify

PKCS8 = "MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v_VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g"
"""RFC 8032 test 1 as PKCS #8."""
SPKI = "MCowBQYDK2VwAyEA11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
"""Its public key, d75a9801...07511a."""
LOW_ORDER = [
    "0100000000000000000000000000000000000000000000000000000000000000",
    "0100000000000000000000000000000000000000000000000000000000000080",
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0000000000000000000000000000000000000000000000000000000000000080",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
]
"""All 14 encodings of points whose order divides 8 (curve25519 literature; RFC 7748 lists the y coordinates)."""


def _spki(raw: bytes) -> str:
    return encode_b64u(bytes.fromhex("302a300506032b6570032100") + raw)


def test_rfc_8032_key_pair() -> None:
    key = SigningKey.from_pkcs8(PKCS8)
    assert key.public_key.spki == SPKI
    assert key.to_pkcs8() == PKCS8
    assert key.sign_bytes(b"").hex().startswith("e5564300c360ac729086e2cc806e828a")


@pytest.mark.parametrize("encoding", LOW_ORDER)
def test_a_low_order_public_key_is_refused(encoding: str) -> None:
    with pytest.raises(SignatureError, match="low-order"):
        PublicKey.from_spki(_spki(bytes.fromhex(encoding)))


@pytest.mark.parametrize("low", range(0xF0, 0x100), ids=hex)
def test_an_unreduced_public_key_is_refused(low: int) -> None:
    with pytest.raises(SignatureError, match="not a canonical encoding"):
        PublicKey(bytes([low]) + b"\xff" * 30 + b"\x7f")


def test_a_signature_covers_domain_field_and_value() -> None:
    key = SigningKey.from_pkcs8(PKCS8)
    signature = key.sign("tasc/a/v1", "record", {"b": 1, "a": 2.0})
    assert is_signed(key.public_key, "tasc/a/v1", "record", {"a": 2, "b": 1}, signature)
    assert not is_signed(key.public_key, "tasc/b/v1", "record", {"a": 2, "b": 1}, signature)
    assert not is_signed(key.public_key, "tasc/a/v1", "trace", {"a": 2, "b": 1}, signature)
    assert not is_signed(key.public_key, "tasc/a/v1", "record", {"a": 2, "b": 2}, signature)
    assert not is_signed(SigningKey.generate().public_key, "tasc/a/v1", "record", {"a": 2, "b": 1}, signature)


@pytest.mark.parametrize(
    "signature",
    ["", "A" * 85, "A" * 86 + "=", "A" * 88, "é" * 86, "A" * 85 + "B"],
    ids=["empty", "short", "padded", "long", "no-ascii", "spare-bits"],
)
def test_a_malformed_signature_is_no_signature(signature: str) -> None:
    assert not is_signed(SigningKey.generate().public_key, "tasc/a/v1", "record", {}, signature)


def test_verify_names_the_place_and_the_way_out() -> None:
    key = SigningKey.generate()
    with pytest.raises(SignatureError) as caught:
        verify(key.public_key, "tasc/a/v1", "record", {}, "A" * 86, where="plan.json")
    assert str(caught.value).startswith("plan.json: ")
    assert caught.value.way_out


@pytest.mark.parametrize("text", ["AA==", "A", "AB", "A+A", "A/A", " AAA", "AAA\n"])
def test_only_canonical_base64url_is_read(text: str) -> None:
    with pytest.raises(SignatureError):
        decode_b64u(text)


def test_base64url_round_trip_without_padding() -> None:
    assert encode_b64u(b"\xff\xfe") == "__4"
    assert decode_b64u("__4") == b"\xff\xfe"
    assert decode_b64u("") == b""


def test_another_algorithm_is_refused_on_both_sides() -> None:
    other = X25519PrivateKey.generate()
    private = other.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    public = other.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    with pytest.raises(SignatureError, match="not an Ed25519 private key"):
        SigningKey.from_pkcs8(encode_b64u(private))
    with pytest.raises(SignatureError, match="not a canonical Ed25519 public key"):
        PublicKey.from_spki(encode_b64u(public))


@pytest.mark.parametrize("text", ["", "AAAA", PKCS8[:-1], PKCS8 + "=", PKCS8 + "\n"])
def test_a_bad_private_key_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(SignatureError) as caught:
        SigningKey.from_pkcs8(text)
    assert PKCS8[10:20] not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.way_out


def test_trailing_bytes_after_a_public_key_are_refused() -> None:
    with pytest.raises(SignatureError):
        PublicKey.from_spki(encode_b64u(decode_b64u(SPKI) + b"\0"))


def test_a_private_key_does_not_leave_the_process() -> None:
    key = SigningKey.from_pkcs8(PKCS8)
    seed = base64.b64encode(decode_b64u(PKCS8)[-32:]).decode()
    assert seed[:16] not in repr(key)
    assert SPKI in repr(key)
    for leave in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            leave(key)
