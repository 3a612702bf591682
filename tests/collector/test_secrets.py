"""Secrets: references only, refused without echo, shown nowhere."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest

from tasc_collector.errors import InputError, SecretUnavailable
from tasc_collector.secrets import Secret, SecretStore, certificate_file, resolve


def test_an_environment_reference_gives_its_value_only_on_request() -> None:
    secret = resolve("env:TASC_RUNTIME_AUTH_A", environ={"TASC_RUNTIME_AUTH_A": "Bearer CANARY"}, key_folder=None)
    assert secret.reveal() == b"Bearer CANARY"
    assert secret.reveal_text() == "Bearer CANARY"
    assert "CANARY" not in repr(secret) + str(secret) + f"{secret}"


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_secret_cannot_be_copied_or_pickled(copied: object) -> None:
    with pytest.raises(TypeError):
        copied(Secret(b"CANARY"))  # type: ignore[operator]  # each is a function of one argument


@pytest.mark.parametrize(
    "value", ["CANARY\n", "CAN\x00ARY", " CANARY", "CANARY ", "CANARÿ", "", "CANARY" * 3_000, "CAN\tARY", "CANARY\r"]
)
def test_a_value_that_is_not_clean_is_refused_without_value_or_name(value: str) -> None:
    with pytest.raises(SecretUnavailable) as refusal:
        resolve("env:TASC_NAME_CANARY2", environ={"TASC_NAME_CANARY2": value}, key_folder=None)
    assert "CANAR" not in str(refusal.value)
    assert "->" in str(refusal.value)


def test_an_absent_variable_is_refused_without_its_name() -> None:
    with pytest.raises(SecretUnavailable) as refusal:
        resolve("env:TASC_CANARY", environ={}, key_folder=None)
    assert "CANARY" not in str(refusal.value)


@pytest.mark.parametrize(
    "reference",
    [
        "CANARY",
        "env:HOME",
        "env:TASC_lower",
        "keyfile:../x",
        "keyfile:a/b",
        "keyfile:",
        "file:/etc/passwd",
        "keyfile:a..b",
    ],
)
def test_another_form_of_reference_is_refused_without_echo(reference: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as refusal:
        resolve(reference, environ={"HOME": "CANARY", "TASC_lower": "CANARY"}, key_folder=tmp_path)
    assert "CANARY" not in str(refusal.value)


def key_file(folder: Path, name: str = "main", *, mode: int = 0o600, content: bytes = b"CANARY") -> Path:
    path = folder / name
    path.write_bytes(content)
    path.chmod(mode)
    return path


def test_a_key_file_of_mode_0600_is_read(tmp_path: Path) -> None:
    key_file(tmp_path)
    assert SecretStore({}, tmp_path).resolve("keyfile:main").reveal() == b"CANARY"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o610])
def test_a_key_file_that_others_may_read_is_refused(mode: int, tmp_path: Path) -> None:
    key_file(tmp_path, mode=mode)
    with pytest.raises(SecretUnavailable, match="chmod 600"):
        SecretStore({}, tmp_path).resolve("keyfile:main")


def test_a_link_a_folder_a_missing_file_and_a_newline_are_refused(tmp_path: Path) -> None:
    target = key_file(tmp_path, "real")
    (tmp_path / "link").symlink_to(target)
    (tmp_path / "folder").mkdir(mode=0o700)
    key_file(tmp_path, "newline", content=b"CANARY\n")
    store = SecretStore({}, tmp_path)
    for name in ("link", "folder", "absent", "newline"):
        with pytest.raises(SecretUnavailable) as refusal:
            store.resolve(f"keyfile:{name}")
        assert "CANARY" not in str(refusal.value)
        assert str(tmp_path) not in str(refusal.value)
    with pytest.raises(SecretUnavailable):
        SecretStore({}, None).resolve("keyfile:real")


def test_a_client_certificate_is_a_private_key_file(tmp_path: Path) -> None:
    path = key_file(tmp_path, "client.pem")
    assert certificate_file("keyfile:client.pem", key_folder=tmp_path) == path
    path.chmod(0o644)
    with pytest.raises(SecretUnavailable):
        certificate_file("keyfile:client.pem", key_folder=tmp_path)
    with pytest.raises(SecretUnavailable):
        certificate_file("env:TASC_CLIENT", key_folder=tmp_path)


def test_a_store_shows_neither_environment_nor_folder() -> None:
    shown = repr(SecretStore({"TASC_A": "CANARY"}, Path("/secret/place")))
    assert "CANARY" not in shown
    assert "/secret" not in shown
