"""Scalar types shared by every record (original project, section 3).

Lengths are UTF-16 code units there; every pattern here is ASCII or bounded well inside, so characters are the same.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

from tasc_collector.canonical import MAX_SAFE_INTEGER

DIGEST_PATTERN = r"^sha256:[0-9a-f]{64}$"
WINDOW_KEY_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,79}$"

_TIMESTAMP = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z")
_CREDENTIAL = re.compile(
    r"\b(?:bearer|basic)\s+[a-z0-9._~+/=-]+"
    r"|\b(?:api[-_ ]?key|authorization|password|passwd|secret)\b\s*[:=]"
    r"|\bsk-[a-z0-9_-]{8,}\b",
    re.IGNORECASE | re.ASCII,
)
"""What a credential looks like beside other text; a model that is called ``secret-santa`` is not one."""


def _instant(text: str) -> str:
    parse_timestamp(text)
    return text


def _trimmed(text: str) -> str:
    if text != text.strip().strip("\ufeff"):
        raise ValueError("no white space at either end")
    if not text.isascii() and len(text.encode("utf-16-le", "surrogatepass")) > 2 * 256:
        raise ValueError("at most 256 UTF-16 units")
    return text


def no_credential(text: str) -> str:
    """``text``, or ``ValueError`` where it looks like a credential."""
    if _CREDENTIAL.search(text):
        raise ValueError("looks like a credential")
    return text


def _no_dots(text: str) -> str:
    if ".." in text:
        raise ValueError("must not contain '..'")
    return text


Slug = Annotated[str, StringConstraints(pattern=r"^[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?$", min_length=1, max_length=128)]
"""Lowercase identifier, 1 to 128 characters."""
OpaqueId = Annotated[Slug, AfterValidator(_no_dots)]
"""Alias or reference that reveals nothing: a slug without ``..`` (original project, section 5)."""
Digest = Annotated[str, StringConstraints(pattern=DIGEST_PATTERN)]
"""``sha256:`` and 64 lowercase hex digits."""
Timestamp = Annotated[str, AfterValidator(_instant)]
"""UTC instant with exactly milliseconds, 24 characters."""
Text = Annotated[str, StringConstraints(min_length=1, max_length=256), AfterValidator(_trimmed)]
"""1 to 256 characters without outer white space."""
TraceText = Annotated[Text, AfterValidator(no_credential)]
"""Text that also does not look like a credential."""
B64u = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]+$", min_length=1, max_length=512)]
"""Unpadded base64url."""
Hex64 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
"""32 bytes as bare lowercase hex."""
WindowKey = Annotated[str, StringConstraints(pattern=WINDOW_KEY_PATTERN), AfterValidator(_no_dots)]
"""Partition key of a sealed window: ``<window id>.r<revision>-<first 8 hex of the declaration's digest>``."""
ModelId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+:/-]*$", min_length=1, max_length=512)]
"""Model id or revision as it goes on the wire."""
Build = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,255}$"), AfterValidator(_no_dots)]
"""A runtime build such as ``0.26.0`` or ``b10156``."""
Reference = Annotated[
    str,
    StringConstraints(pattern=r"^(?:env:TASC_[A-Z0-9_]{1,90}|keyfile:[a-z0-9][a-z0-9._-]{0,63})$"),
    AfterValidator(_no_dots),
]
"""Where a secret is found at dispatch: ``env:NAME`` or ``keyfile:NAME``; never the secret."""
Count = Annotated[int, Field(ge=0, le=MAX_SAFE_INTEGER)]
"""Non-negative safe integer."""
Positive = Annotated[int, Field(ge=1, le=MAX_SAFE_INTEGER)]
"""Positive safe integer."""
Nanoseconds = Count
"""Duration or offset in integer nanoseconds of one monotonic clock."""
Ratio = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
"""A share from 0 to 1."""
Finite = Annotated[float, Field(allow_inf_nan=False)]
"""Any finite number."""
NonNegative = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
"""A finite number, zero or more."""


def parse_timestamp(text: str) -> datetime:
    """The instant of a ``Timestamp``; raises ``ValueError`` where the calendar has no such instant."""
    if not _TIMESTAMP.fullmatch(text):
        raise ValueError("a timestamp is UTC with milliseconds, like 2026-01-31T09:30:00.000Z")
    return datetime.fromisoformat(text)


def format_timestamp(instant: datetime) -> str:
    """A ``Timestamp`` of an aware instant, cut (not rounded) to milliseconds."""
    utc = instant.astimezone(UTC)
    return utc.strftime("%Y-%m-%dT%H:%M:%S.") + f"{utc.microsecond // 1000:03d}Z"


def timestamp_ms(text: str) -> int:
    """Milliseconds since 1970 of a ``Timestamp``, exact."""
    delta = parse_timestamp(text) - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86400 + delta.seconds) * 1000 + delta.microseconds // 1000


def timestamp_of_ms(milliseconds: int) -> str:
    """The ``Timestamp`` of milliseconds since 1970."""
    seconds, rest = divmod(milliseconds, 1000)
    return f"{_second(seconds)}{rest:03d}Z"


@lru_cache(maxsize=256)
def _second(seconds: int) -> str:
    """A ``Timestamp`` up to its milliseconds; many instants of a run share a second."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.")
