"""Ed25519 and HMAC against vectors that others published."""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import pytest

from tasc_collector.errors import SignatureError
from tasc_collector.signing import PublicKey

VECTORS = Path(__file__).resolve().parents[3] / "shared" / "vectors" / "crypto"
SPECCHECK_VERDICTS = (
    "key",  # 0: small-order A and R
    "key",  # 1: small-order A
    "accept",  # 2: small-order R only
    "accept",  # 3: mixed-order A and R, valid without the cofactor
    "reject",  # 4: valid only with the cofactor
    "reject",  # 5: valid only with the cofactor
    "reject",  # 6: s not reduced
    "reject",  # 7: s not reduced, high bits
    "reject",  # 8: non-canonical R
    "reject",  # 9: non-canonical R
    "key",  # 10: non-canonical small-order A
    "key",  # 11: non-canonical small-order A
)
"""What the twelve cases of "Taming the many EdDSAs" (table 6) give under rule 2 and a verifier without the cofactor."""

needs_vectors = pytest.mark.skipif(not VECTORS.is_dir(), reason="the crypto vectors are not beside this repository")


def _load(name: str) -> Any:
    path = VECTORS / name
    if not path.is_file():
        pytest.skip(f"{name} is not among the vectors")
    return json.loads(path.read_bytes())


def _verdict(key: str, signature: str, message: bytes) -> str:
    try:
        public = PublicKey(bytes.fromhex(key))
    except SignatureError:
        return "key"
    return "accept" if public.accepts(bytes.fromhex(signature), message) else "reject"


@needs_vectors
def test_wycheproof_ed25519_signatures() -> None:
    wrong = [
        case["tcId"]
        for group in _load("wycheproof_ed25519_test.json")["testGroups"]
        for case in group["tests"]
        if _verdict(group["publicKey"]["pk"], case["sig"], bytes.fromhex(case["msg"]))
        != ("accept" if case["result"] == "valid" else "reject")
    ]
    assert wrong == []


@needs_vectors
def test_every_low_order_key_of_cctv_is_refused_and_no_other_verdict_depends_on_the_key() -> None:
    wrong = []
    for case in _load("cctv_ed25519vectors.json"):
        flags = set(case["flags"] or ())
        refused = "reject" if flags & {"low_order_residue", "non_canonical_R"} else "accept"
        expected = "key" if "low_order_A" in flags else refused
        if _verdict(case["key"], case["sig"], case["msg"].encode()) != expected:
            wrong.append(case["number"])
    assert wrong == []


@needs_vectors
def test_speccheck_cases() -> None:
    cases = _load("ed25519_speccheck_cases.json")
    found = [_verdict(case["pub_key"], case["signature"], bytes.fromhex(case["message"])) for case in cases]
    assert found == list(SPECCHECK_VERDICTS[: len(cases)])


@needs_vectors
@pytest.mark.parametrize("name", ["sha256", "sha512"])
def test_wycheproof_hmac_tags(name: str) -> None:
    wrong = []
    for group in _load(f"wycheproof_hmac_{name}_test.json")["testGroups"]:
        size = group["tagSize"] // 8
        for case in group["tests"]:
            tag = hmac.new(bytes.fromhex(case["key"]), bytes.fromhex(case["msg"]), getattr(hashlib, name)).digest()[
                :size
            ]
            if hmac.compare_digest(tag, bytes.fromhex(case["tag"])) != (case["result"] == "valid"):
                wrong.append(case["tcId"])
    assert wrong == []


@needs_vectors
def test_rfc_4231_hmac_tags() -> None:
    for case in _load("rfc4231_hmac_sha256.json")["cases"]:
        tag = hmac.new(bytes.fromhex(case["key"]), bytes.fromhex(case["msg"]), hashlib.sha256).hexdigest()
        assert tag == case["tag"]
