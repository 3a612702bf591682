"""Replicate ids and counterbalanced order."""

from __future__ import annotations

import hashlib
from collections import Counter

import pytest

from tasc_collector.canonical import canonical_bytes
from tasc_collector.errors import InputError
from tasc_collector.shadow.order import PLAN_ORDER, WINDOW_ORDER, OrderSeed

SEED = "sha256:" + "ab" * 32
PROFILES = ("champion", "candidate-b", "candidate-a")


def _digest(domain: str, value: dict[str, object]) -> str:
    return hashlib.sha256(canonical_bytes({"domain": domain, "value": value})).hexdigest()  # type: ignore[dict-item]


def test_a_replicate_id_is_a_public_digest_of_seed_case_group_and_index() -> None:
    members = {"caseId": "case-1", "groupId": "group-1", "replicateIndex": 2}
    assert OrderSeed(SEED, PLAN_ORDER).replicate_id("case-1", "group-1", 2) == "replicate-" + _digest(
        "tasc/shadow-replicate-id/v2", {"planDigest": SEED, **members}
    )
    assert OrderSeed(SEED).replicate_id("case-1", "group-1", 2) == "replicate-" + _digest(
        "tasc/window-replicate-id/v1", {"declarationDigest": SEED, **members}
    )


def test_the_two_domains_give_different_ids() -> None:
    assert WINDOW_ORDER.counterbalance == "tasc/window-counterbalance/v1"
    assert OrderSeed(SEED, PLAN_ORDER).replicate_id("c", "g", 0) != OrderSeed(SEED).replicate_id("c", "g", 0)


@pytest.mark.parametrize("block", range(5))
@pytest.mark.parametrize("case", ["case-1", "case-2", "case-3"])
def test_a_full_block_is_a_cyclic_latin_square(case: str, block: int) -> None:
    rows = [OrderSeed(SEED).order(case, "group", block * 3 + index, PROFILES) for index in range(3)]
    rotations = {PROFILES, ("candidate-b", "candidate-a", "champion"), ("candidate-a", "champion", "candidate-b")}
    assert set(rows) == rotations
    for position in range(3):
        assert {row[position] for row in rows} == set(PROFILES)


def test_the_rank_of_the_digest_is_the_rotation() -> None:
    value = {"planDigest": SEED, "caseId": "c", "groupId": "g"}
    digests = [_digest("tasc/shadow-counterbalance/v2", {**value, "replicateIndex": index}) for index in (2, 3)]
    expected = 0 if digests[1] < digests[0] else 1
    assert OrderSeed(SEED, PLAN_ORDER).rotation("c", "g", 3, 2) == expected


def test_single_replicates_start_with_either_profile_about_equally() -> None:
    firsts = Counter(
        OrderSeed(SEED).order(f"case-{n}", f"group-{n}", 0, ("champion", "candidate"))[0] for n in range(400)
    )
    assert 150 < firsts["champion"] < 250


def test_another_declaration_gives_another_order_somewhere() -> None:
    def orders(seed: str) -> list[tuple[str, ...]]:
        return [OrderSeed(seed).order(f"case-{n}", "group", 0, PROFILES) for n in range(20)]

    assert orders(SEED) != orders("sha256:" + "cd" * 32)
    assert orders(SEED) == orders(SEED)


@pytest.mark.parametrize(("index", "profiles"), [(-1, 2), (0, 0)])
def test_nonsense_is_refused(index: int, profiles: int) -> None:
    with pytest.raises(InputError, match="at least one profile"):
        OrderSeed(SEED).rotation("c", "g", index, profiles)
