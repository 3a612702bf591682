"""Keys change with dates: rotation, revocation, import; what a date means, and what a crash between two steps leaves."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tasc_collector.contracts.authority import AuthorityKey
from tasc_collector.contracts.operations import KeyRing, KeyRole, RingKey
from tasc_collector.contracts.scalars import format_timestamp
from tasc_collector.errors import DigestMismatch, InputError, NotAuthorized
from tasc_collector.signing import SigningKey, encode_b64u
from tasc_pipeline.home import Home, keys
from tasc_pipeline.home.files import make_folder, write_file
from tasc_pipeline.home.key_changes import finish_rotation, import_public, new_hmac_key, public_part, revoke, rotate
from tasc_pipeline.home.setup import init_home
from tests.support.mutations import check_every_field

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
LATER = NOW + timedelta(days=10)
DAY = timedelta(days=1)


def at(instant: datetime) -> str:
    return format_timestamp(instant)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    init_home(home, NOW, lambda _: None)
    return home


def of(home: Home, role: KeyRole) -> list[RingKey]:
    return [key for key in keys.read_ring(home).keys if key.role == role]


def authority(key: RingKey) -> AuthorityKey:
    return AuthorityKey(key_id=key.key_id, public_key_spki=key.public_key_spki)


def test_a_rotated_key_signs_from_now_and_the_old_one_until_the_overlap_ends(home: Home) -> None:
    done = rotate(home, "collector", LATER)
    ring = keys.read_ring(home)
    assert done.old is not None
    assert (done.new.valid_from, done.old.valid_until) == (at(LATER), at(LATER + timedelta(days=30)))
    assert keys.current(ring, "collector", at(LATER)) == done.new
    assert keys.signing_key(home, "keyfile:collector.key").public_key.spki == done.new.public_key_spki
    kept = keys.authority_key(home, "keyfile:collector.key", authority(done.old))
    assert kept.public_key.spki == done.old.public_key_spki
    for key_id, when, refused in (
        (done.old.key_id, NOW, False),
        (done.old.key_id, LATER + 29 * DAY, False),
        (done.old.key_id, LATER + 30 * DAY, True),
        (done.new.key_id, LATER - timedelta(milliseconds=1), True),
        (done.new.key_id, LATER, False),
    ):
        if refused:
            with pytest.raises(NotAuthorized, match=r"valid (from|until) 20"):
                keys.public_key(ring, key_id, ("collector",), at(when), where="record")
        else:
            keys.public_key(ring, key_id, ("collector",), at(when), where="record")
    assert {path.stat().st_mode & 0o777 for path in home.keys.iterdir()} == {0o600}


def test_the_operators_old_key_ends_at_once_and_what_it_signed_keeps_counting(home: Home) -> None:
    done = rotate(home, "operator", LATER)
    ring = keys.read_ring(home)
    assert done.old is not None and done.old.valid_until == at(LATER)
    keys.public_key(ring, done.old.key_id, ("operator",), at(LATER - DAY), where="record")
    with pytest.raises(NotAuthorized, match=f"valid until {at(LATER)}"):
        keys.public_key(ring, done.old.key_id, ("operator",), at(LATER), where="record")


def test_an_overlap_never_lengthens_a_key_and_has_bounds(home: Home) -> None:
    before = of(home, "dispatch")[0]
    done = rotate(home, "dispatch", NOW + 360 * DAY)
    assert done.old is not None and done.old.valid_until == before.valid_until
    for overlap in (-DAY, 366 * DAY):
        with pytest.raises(InputError, match="0 to 365 days"):
            rotate(home, "dispatch", LATER, overlap=overlap)
    with pytest.raises(InputError, match="import its new public key"):
        rotate(home, "evaluator", LATER)


def test_a_role_rotated_again_and_again_keeps_every_key(home: Home) -> None:
    for number in range(1, 4):
        rotate(home, "dispatch", NOW + number * DAY)
    entries = of(home, "dispatch")
    assert len(entries) == 4
    for entry in entries:
        found = keys.authority_key(home, "keyfile:dispatch.key", authority(entry))
        assert found.public_key.spki == entry.public_key_spki
    stranger = SigningKey.generate().public_key.spki
    with pytest.raises(DigestMismatch, match="not that of the authority"):
        keys.authority_key(home, "keyfile:dispatch.key", AuthorityKey(key_id="other", public_key_spki=stranger))


def test_a_rotation_that_was_cut_off_is_finished_by_init(home: Home) -> None:
    old = (home.keys / "collector.key").read_bytes()
    done = rotate(home, "collector", LATER)
    write_file(home.keys / "collector.key", old, replace=True)  # as if the last step had not happened
    said: list[str] = []
    init_home(home, LATER + DAY, said.append)
    assert "finished the rotation of the collector key" in said
    assert keys.signing_key(home, "keyfile:collector.key").public_key.spki == done.new.public_key_spki
    assert not finish_rotation(home, "collector")
    assert len(of(home, "collector")) == 2


def test_a_host_without_the_operators_private_key_can_rotate_it(home: Home) -> None:
    (home.keys / "operator.key").unlink()
    done = rotate(home, "operator", LATER)
    assert keys.signing_key(home, "keyfile:operator.key").public_key.spki == done.new.public_key_spki


def test_a_revoked_key_counts_until_its_date_and_the_date_only_moves_back(home: Home) -> None:
    key = of(home, "collector")[0]
    revoked = revoke(home, key.key_id, LATER)
    assert revoked.revoked_at == at(LATER)
    ring = keys.read_ring(home)
    keys.public_key(ring, key.key_id, ("collector",), at(LATER - DAY), where="record")
    with pytest.raises(NotAuthorized, match=f"revoked from {at(LATER)}"):
        keys.public_key(ring, key.key_id, ("collector",), at(LATER), where="record")
    assert revoke(home, key.key_id, LATER + DAY) == revoked
    with pytest.raises(NotAuthorized, match="never moves later"):
        revoke(home, key.key_id, LATER + DAY, since=at(LATER + timedelta(hours=1)))
    assert revoke(home, key.key_id, LATER + DAY, since=at(NOW + DAY)).revoked_at == at(NOW + DAY)
    with pytest.raises(InputError, match="not dated after now"):
        revoke(home, key.key_id, LATER, since=at(LATER + DAY))
    with pytest.raises(InputError, match="this is no instant"):
        revoke(home, key.key_id, LATER, since="yesterday")
    with pytest.raises(InputError, match="no such key"):
        revoke(home, "collector-unknown", LATER)
    with pytest.raises(NotAuthorized, match="tasc keys rotate collector"):
        keys.current(keys.read_ring(home), "collector", at(LATER))
    rotate(home, "collector", LATER)
    assert keys.current(keys.read_ring(home), "collector", at(LATER)).key_id != key.key_id


def test_another_hmac_key_is_made_beside_the_one_that_studies_use(home: Home) -> None:
    before = keys.hmac_key(home, "keyfile:payload-hmac.key")
    reference = new_hmac_key(home, "payload-hmac", LATER)
    assert reference.startswith("keyfile:payload-hmac-20261209-")
    assert len(keys.hmac_key(home, reference)) == 32 and keys.hmac_key(home, reference) != before
    assert keys.hmac_key(home, "keyfile:payload-hmac.key") == before


def ring_file(path: Path, *entries: RingKey) -> Path:
    path.write_bytes(KeyRing(keys=entries).canonical())
    return path


def evaluator(spki: str | None = None, **changes: object) -> RingKey:
    fields = {
        "key_id": "evaluator-1",
        "role": "evaluator",
        "public_key_spki": spki or SigningKey.generate().public_key.spki,
        "valid_from": at(NOW),
        "valid_until": at(NOW + 90 * DAY),
        "revoked_at": None,
    }
    return RingKey.model_validate({**fields, **changes})


def test_public_keys_are_imported_by_role_and_revocations_are_taken_over(home: Home, tmp_path: Path) -> None:
    key = evaluator()
    other = evaluator(key_id="operator-9", role="operator")
    path = ring_file(tmp_path / "ring.json", key, other)
    assert import_public(home, path, "evaluator") == [key]
    assert import_public(home, path, "evaluator") == []
    assert "operator-9" not in {entry.key_id for entry in keys.read_ring(home).keys}
    revoked = key.model_copy(update={"revoked_at": at(LATER), "valid_until": at(NOW + 300 * DAY)})
    (taken,) = import_public(home, ring_file(tmp_path / "later.json", revoked), "evaluator")
    assert (taken.revoked_at, taken.valid_until) == (at(LATER), key.valid_until), "nothing but the revocation"
    assert import_public(home, path, "evaluator") == [], "a revocation is never taken back"


def test_an_import_that_contradicts_the_ring_is_refused(home: Home, tmp_path: Path) -> None:
    key = evaluator()
    import_public(home, ring_file(tmp_path / "ring.json", key), "evaluator")
    before = home.key_ring.read_bytes()
    for entry in (
        evaluator(),
        evaluator(key.public_key_spki, key_id="evaluator-2"),
        evaluator(of(home, "operator")[0].public_key_spki, key_id="evaluator-3"),
    ):
        with pytest.raises(InputError, match="one key has one id and one role"):
            import_public(home, ring_file(tmp_path / "wrong.json", entry), "evaluator")
    with pytest.raises(InputError, match="holds no dispatch key"):
        import_public(home, tmp_path / "ring.json", "dispatch")
    assert home.key_ring.read_bytes() == before


LOW_ORDER = (bytes(32), bytes([1]) + bytes(31), bytes.fromhex("ec" + "ff" * 30 + "7f"))


@pytest.mark.parametrize("point", LOW_ORDER)
def test_a_small_order_key_never_enters_a_ring(home: Home, tmp_path: Path, point: bytes) -> None:
    spki = encode_b64u(bytes.fromhex("302a300506032b6570032100") + point)
    value = KeyRing(keys=(evaluator(),)).to_json()
    value["keys"][0]["publicKeySpki"] = spki
    path = tmp_path / "ring.json"
    path.write_text(json.dumps(value))
    before = home.key_ring.read_bytes()
    with pytest.raises(InputError, match="low-order point"):
        import_public(home, path, "evaluator")
    assert home.key_ring.read_bytes() == before


def test_the_public_part_is_what_another_machine_imports(home: Home, tmp_path: Path) -> None:
    ring = keys.read_ring(home)
    chosen = of(home, "operator")[0]
    assert public_part(ring, (chosen.key_id,)).keys == (chosen,)
    assert public_part(ring, ()) == ring
    with pytest.raises(InputError, match="no such key"):
        public_part(ring, ("nobody",))
    other = Home(tmp_path / "other")
    make_folder(other.keys)
    keys.create_missing(other, NOW)
    path = ring_file(tmp_path / "part.json", *public_part(ring, (chosen.key_id,)).keys)
    assert import_public(other, path, "operator") == [chosen]


def test_every_field_of_a_ring_is_checked(home: Home) -> None:
    check_every_field(KeyRing, keys.read_ring(home).to_json())
    value = keys.read_ring(home).to_json()
    value["keys"][0]["validUntil"] = value["keys"][0]["validFrom"]
    with pytest.raises(InputError, match="validUntil is after validFrom"):
        KeyRing.from_value(value)
    twice = keys.read_ring(home).to_json()
    twice["keys"][1]["keyId"] = twice["keys"][0]["keyId"]
    with pytest.raises(InputError, match="key ids are unique"):
        KeyRing.from_value(twice)
