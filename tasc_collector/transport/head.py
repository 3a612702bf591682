"""What is checked in the head of an answer, once its framing is known to be sound. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from tasc_collector.contracts.persistence import no_credential_word
from tasc_collector.errors import WireError
from tasc_collector.limits import MAX_CONTENT_TYPE_LENGTH, MAX_RETRY_AFTER_S
from tasc_collector.transport.codes import Code
from tasc_collector.transport.http1 import Head

_TOKEN = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"  # noqa: S105 - grammar, not a secret
_MEDIA = re.compile(rf"({_TOKEN}/{_TOKEN})((?:[ \t]*;[ \t]*{_TOKEN}=(?:{_TOKEN}|\"[^\"\\\x00-\x1f]*\"))*)")
_PARAMETER = re.compile(rf"({_TOKEN})=(?:({_TOKEN})|\"([^\"]*)\")")
_RETRY = re.compile(rb"[0-9]{1,6}")
_REQUEST_ID = re.compile(rb"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class CheckedHead:
    """What is kept of a head.

    Args:
        status: HTTP status.
        content_type: media type in lower case, without parameters; None where absent or malformed.
        retry_after_s: seconds, at most a day; None where absent or no plain number.
        request_id: ``x-request-id`` where it is 1 to 128 harmless characters.
    """

    status: int
    content_type: str | None
    retry_after_s: int | None
    request_id: str | None


def note_head(head: Head) -> CheckedHead:
    """Keep the allow-listed parts of a head; everything else is dropped."""
    retry = head.all(b"retry-after")
    ids = head.all(b"x-request-id")
    return CheckedHead(
        head.status,
        _media_type(head),
        min(int(retry[0]), MAX_RETRY_AFTER_S) if len(retry) == 1 and _RETRY.fullmatch(retry[0]) else None,
        _harmless_id(ids[0]) if len(ids) == 1 else None,
    )


def _harmless_id(value: bytes) -> str | None:
    """A provider's request id, if it has the persisted form (``ErrorId``) and does not look like a credential."""
    if _REQUEST_ID.fullmatch(value) is None:
        return None
    try:
        return no_credential_word(value.decode("ascii"))
    except ValueError:
        return None


def refuse_status(status: int) -> Code | None:
    """The code of a status that is no success: only 200 is one; nothing else carries a generation."""
    if status == 200:
        return None
    if 300 <= status < 400 and status != 304:
        return Code.REDIRECT_DENIED
    return Code.PROVIDER_ERROR if status >= 400 else Code.UNEXPECTED_STATUS


def check_success(head: Head, content_types: Collection[str]) -> None:
    """Check a 200 head before any of its body is used.

    Args:
        head: the head.
        content_types: media types that are allowed; empty for any.

    Raises:
        WireError: a compressed or partial body, or another or malformed content type.
    """
    if any(value.lower() != b"identity" for value in head.all(b"content-encoding")):
        raise WireError(Code.COMPRESSED_RESPONSE)
    if head.all(b"content-range") or len(head.all(b"content-type")) > 1:
        raise WireError(Code.INVALID_RESPONSE_HEADERS)
    if content_types and _media_type(head) not in content_types:
        raise WireError(Code.CONTENT_TYPE_REFUSED)


def _media_type(head: Head) -> str | None:
    """Media type of a well-formed content type whose character set, if named, is UTF-8."""
    values = head.all(b"content-type")
    if len(values) != 1 or len(values[0]) > MAX_CONTENT_TYPE_LENGTH:
        return None
    match = _MEDIA.fullmatch(values[0].decode("latin-1"))
    if match is None:
        return None
    seen: set[str] = set()
    for name, token, quoted in _PARAMETER.findall(match[2]):
        if name.lower() in seen or (name.lower() == "charset" and (token or quoted).lower() not in {"utf-8", "utf8"}):
            return None
        seen.add(name.lower())
    return match[1].lower()
