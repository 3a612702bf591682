"""What every incremental parser does with the chunks it is given, and how bounds are declared.

Rules:

1. What comes out depends on the bytes, not on how they were cut: a parser first hands out what it could read, and
   refuses on the *next* call if a chunk held both good and bad bytes. After a refusal every call refuses again.
2. An empty chunk is a caller's mistake and is refused: the end of a stream is told by ``finish``.
3. Bytes beyond the bound on the whole stream are never looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Protocol

from tasc_collector.errors import InputError
from tasc_collector.wire.refusals import WireCode, refusal


class StreamLimits(Protocol):
    """The two bounds that every stream has."""

    @property
    def max_bytes(self) -> int:
        """Bytes of the whole stream."""

    @property
    def max_chunks(self) -> int:
        """Chunks of the whole stream."""


def check_bounds(limits: object, hard: Mapping[str, int], *, where: str) -> None:
    """Hold a dataclass of bounds to its hard maxima.

    Args:
        limits: a dataclass instance whose ``init`` fields are all bounds.
        hard: the largest value of each.
        where: what the bounds are of, for the error.

    Raises:
        InputError: a bound is not positive, or above its hard maximum; names the first such field.
    """
    for item in fields(limits):  # type: ignore[arg-type]  # every caller is a dataclass; typeshed's protocol for it is private
        if item.init and not 1 <= getattr(limits, item.name) <= hard[item.name]:
            raise InputError(
                f"must be from 1 to {hard[item.name]}", where=where, field=item.name, way_out="choose one of them"
            )


class Intake:
    """Counts the chunks and bytes of one stream and remembers why it was refused."""

    __slots__ = ("_chunks_left", "_code", "_offset", "_room", "refused")

    def __init__(self, limits: StreamLimits) -> None:
        self._room, self._chunks_left = limits.max_bytes, limits.max_chunks
        self._code: WireCode | None = None
        self._offset: int | None = None
        self.refused = False
        """True once anything was refused."""

    def admit(self, chunk: bytes) -> bytes:
        """The part of a chunk that is within the stream's bound.

        Raises:
            WireError: the stream was refused before, or this chunk is empty or one too many.
        """
        if self.refused or not self.take(len(chunk)):
            return self._admit_some(chunk)
        return chunk

    def take(self, size: int, chunks: int = 1) -> bool:
        """Count so many chunks of this size in bytes together, if the bounds and the rules allow them whole."""
        if 0 < size <= self._room and self._chunks_left >= chunks:
            self._room -= size
            self._chunks_left -= chunks
            return True
        return False

    def _admit_some(self, chunk: bytes) -> bytes:
        self.check()
        if not chunk:
            self.refuse(WireCode.INVALID_CHUNK)
        elif not self._chunks_left:
            self.refuse(WireCode.CHUNK_LIMIT)
        self.check()
        self.refuse(WireCode.BYTE_LIMIT)
        return chunk[: self._room]

    def refuse(self, code: WireCode, *, offset: int | None = None) -> None:
        """Remember a refusal; a reason that is found earlier in the same chunk takes the place of a later one."""
        self._code, self._offset, self.refused = code, offset, True

    def check(self) -> None:
        """Raise the refusal, if there was one."""
        if self._code is not None:
            raise refusal(self._code, offset=self._offset)
