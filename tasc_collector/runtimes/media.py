"""Media types: exactly the one that was asked for, with at most ``charset=utf-8``."""

from __future__ import annotations

import re

from tasc_collector.limits import MAX_CONTENT_TYPE_LENGTH
from tasc_collector.runtimes.profile import Framing

_MEDIA_TYPE = re.compile(
    r"([a-z0-9!#$&^_.+-]+/[a-z0-9!#$&^_.+-]+)(?:[ \t]*;[ \t]*charset=(\"?)utf-8\2)?[ \t]*", re.IGNORECASE
)


def media_type_matches(content_type: str | None, framing: Framing) -> bool:
    """True if the header names the framing's media type, without parameters or with ``charset=utf-8``.

    Args:
        content_type: value of the header, or None where there was none.
        framing: the framing that was asked for.
    """
    if content_type is None or len(content_type) > MAX_CONTENT_TYPE_LENGTH:
        return False
    match = _MEDIA_TYPE.fullmatch(content_type.strip())
    return match is not None and match.group(1).lower() == framing.media_type
