"""From a reference to a secret value, at dispatch and not before. The only room that reads secret environment
variables and key files.

Rules:

1. A reference is ``env:NAME`` (names begin with ``TASC_``) or ``keyfile:NAME`` (a file under the key folder).
2. A key file is a regular file of this user that nobody else may read, reached without a symbolic link.
3. A value is 1 to 16,384 visible ASCII characters. A control character, a trailing newline or white space at an end
   refuses it; the message shows neither value nor variable.
4. A ``Secret`` shows nothing in ``repr``, text or pickling; reading it takes a call that a reader can search for.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn

from tasc_collector.errors import InputError, SecretUnavailable
from tasc_collector.limits import MAX_SECRET_BYTES

_REFERENCE = re.compile(r"(env):(TASC_[A-Z0-9_]{1,90})|(keyfile):([a-z0-9][a-z0-9._-]{0,63})")
_SET_AGAIN = "set the secret again, without a newline at its end; `tasc endpoints check` says whether it is usable"


class Secret:
    """A secret value. It can be used once it is asked for by name, and nothing shows it."""

    __slots__ = ("__value",)

    def __init__(self, value: bytes) -> None:
        self.__value: Final = value

    def reveal(self) -> bytes:
        """The value as bytes."""
        return self.__value

    def reveal_text(self) -> str:
        """The value as ASCII text."""
        return self.__value.decode("ascii")

    def __repr__(self) -> str:
        return "Secret(hidden)"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a secret cannot be copied or pickled")


@dataclass(frozen=True, slots=True)
class SecretStore:
    """Where references are looked up.

    Args:
        environ: environment, usually of this process.
        key_folder: folder of key files; None where there is none.
    """

    environ: Mapping[str, str] = field(repr=False)
    key_folder: Path | None = field(default=None, repr=False)

    def resolve(self, reference: str) -> Secret:
        """The secret of a reference; see ``resolve``."""
        return resolve(reference, environ=self.environ, key_folder=self.key_folder)


def process_secrets(key_folder: Path | None) -> SecretStore:
    """The store of this process: its environment and the operator's key folder."""
    return SecretStore(os.environ, key_folder)


def check_reference(reference: str, *, field_name: str) -> None:
    """Check the form of a reference without looking anything up.

    Raises:
        InputError: it is neither ``env:`` nor ``keyfile:``.
    """
    if _parse(reference) is None:
        raise InputError(
            "not a secret reference",
            field=field_name,
            rule="env:TASC_NAME or keyfile:name",
            way_out="name where the secret is found; never write the secret itself",
        )


def resolve(reference: str, *, environ: Mapping[str, str], key_folder: Path | None) -> Secret:
    """The value that a reference names.

    Args:
        reference: ``env:NAME`` or ``keyfile:NAME``.
        environ: environment to look in.
        key_folder: folder of key files.

    Raises:
        InputError: the reference has another form.
        SecretUnavailable: nothing is there, or a rule is broken. Neither value nor variable is shown.
    """
    check_reference(reference, field_name="reference")
    kind, name = _parse(reference) or ("", "")
    if kind == "env":
        text = environ.get(name)
        if text is None:
            raise _unavailable("the environment holds no value", "let the secret manager inject it into this process")
        value = text.encode("utf-8", "surrogatepass")
    else:
        value = key_file(name, key_folder=key_folder)
    if not value or len(value) > MAX_SECRET_BYTES:
        raise _unavailable(f"a secret has 1 to {MAX_SECRET_BYTES} bytes", _SET_AGAIN)
    if any(not 0x20 <= byte <= 0x7E for byte in value) or value != value.strip():
        raise _unavailable("a secret is visible ASCII without white space at its ends", _SET_AGAIN)
    return Secret(value)


def key_file(name: str, *, key_folder: Path | None) -> bytes:
    """The bytes of a key file, at most one more than the largest secret.

    Raises:
        SecretUnavailable: it is missing, a link, no regular file, another user's, or readable by others.
    """
    with os.fdopen(_open_key_file(name, key_folder), "rb") as file:
        return file.read(MAX_SECRET_BYTES + 1)


def certificate_file(reference: str, *, key_folder: Path | None) -> Path:
    """Path of a client certificate with its key, checked like a key file; ``ssl`` wants a path.

    Raises:
        SecretUnavailable: as for ``key_file``.
    """
    check_reference(reference, field_name="clientCertificate")
    kind, name = _parse(reference) or ("", "")
    if kind != "keyfile" or key_folder is None:
        raise _unavailable("a client certificate is a key file", "use a keyfile: reference")
    os.close(_open_key_file(name, key_folder))
    return key_folder / name


def _open_key_file(name: str, key_folder: Path | None) -> int:
    if key_folder is None:
        raise _unavailable("there is no key folder", "run `tasc init`, or use an env: reference")
    try:
        handle = os.open(key_folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        raise _unavailable(
            "the key file cannot be opened", "put it into the key folder as a plain file, mode 0600"
        ) from None
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode) or status.st_mode & 0o077 or status.st_uid not in {os.geteuid(), 0}:
        os.close(handle)
        raise _unavailable(
            "a key file is a regular file of this user that nobody else may read", "chmod 600 and chown the file"
        )
    return handle


def _parse(reference: str) -> tuple[str, str] | None:
    match = _REFERENCE.fullmatch(reference)
    if match is None or ".." in reference:
        return None
    return ("env", match[2]) if match[1] else ("keyfile", match[4])


def _unavailable(rule: str, way_out: str) -> SecretUnavailable:
    return SecretUnavailable("a secret is not usable", rule=rule, way_out=way_out)
