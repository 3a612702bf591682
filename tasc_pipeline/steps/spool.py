"""Where the bytes of a window's records are put aside while it is read: memory first, then an unnamed file.

The file lies beside the journal, on the disk that holds a window anyway (the default temporary folder is memory on many
hosts); where nothing may be written there, as in a backup that is verified, in the default folder. It is gone with the
object that holds it.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain, pairwise
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tasc_collector.errors import TascError

SPOOL_BYTES = 64 * 1024 * 1024
"""Bytes of a window's records that stay in memory; what is more goes to disk."""
_GAP_BYTES: Final = 32 * 1024
"""Bytes between two spans that are read along with them: less than another read costs."""
_RUN_BYTES: Final = 8 * 1024 * 1024
"""Bytes of one read."""


Spans: TypeAlias = npt.NDArray[np.int64]
"""Offset and length of each span: ``(spans, 2)``."""


class SpoolFailed(TascError):
    """The window's records cannot be put aside while they are read; it says nothing of the records."""


class Span(NamedTuple):
    """Where bytes lie in the spool."""

    offset: int
    length: int


def spans_of(spans: Iterable[Span | None]) -> Spans:
    """Spans as columns; nothing is an empty one."""
    pairs = chain.from_iterable(span or (0, 0) for span in spans)
    return np.fromiter(pairs, dtype=np.int64).reshape(-1, 2)


class Spool:
    """Bytes that are written once and read at each pass.

    Args:
        folder: where its file lies, if it may be written there; else in the default temporary folder.
    """

    def __init__(self, folder: Path) -> None:
        place = str(folder) if os.access(folder, os.W_OK) else None
        self._file = tempfile.SpooledTemporaryFile(max_size=SPOOL_BYTES, dir=place)  # noqa: SIM115  # closed with its owner
        self._end = 0
        weakref.finalize(self, _close, self._file)

    def put(self, data: bytes) -> Span:
        """Keep some bytes.

        Raises:
            SpoolFailed: the disk refuses.
        """
        try:
            self._file.seek(self._end)
            self._file.write(data)
        except OSError as error:
            raise _failed(error) from None
        span = Span(self._end, len(data))
        self._end += len(data)
        return span

    def get(self, span: Span) -> bytes:
        """The bytes of a span.

        Raises:
            SpoolFailed: the disk refuses, also what was written last and not yet there.
        """
        try:
            self._file.seek(span.offset)
            return self._file.read(span.length)
        except OSError as error:
            raise _failed(error) from None

    def get_many(self, spans: Spans) -> list[memoryview]:
        """The bytes of many spans; those that lie near each other are read at once.

        Raises:
            SpoolFailed: as of ``get``.
        """
        if not len(spans):
            return []
        found = [memoryview(b"")] * len(spans)
        order = np.argsort(spans[:, 0], kind="stable")
        starts = spans[order, 0]
        ends = starts + spans[order, 1]
        apart = starts[1:] - ends[:-1] > _GAP_BYTES
        far = starts[1:] // _RUN_BYTES != starts[:-1] // _RUN_BYTES
        edges = [0, *(np.flatnonzero(apart | far) + 1).tolist(), len(spans)]
        places, firsts, lasts = order.tolist(), starts.tolist(), ends.tolist()
        for begin, end in pairwise(edges):
            base = firsts[begin]
            run = memoryview(self.get(Span(base, max(lasts[begin:end]) - base)))
            for place, first, last in zip(places[begin:end], firsts[begin:end], lasts[begin:end], strict=True):
                found[place] = run[first - base : last - base]
        return found


def _close(file: tempfile.SpooledTemporaryFile[bytes]) -> None:
    with suppress(OSError):  # bytes that a full disk never took are of no use any more
        file.close()


def _failed(error: OSError) -> SpoolFailed:
    reason = os.strerror(error.errno).lower() if error.errno else "no reason given"
    return SpoolFailed(
        f"the window's records cannot be put aside while they are read ({reason})",
        where="journal",
        way_out="make room in the state folder, or where it is read-only in the folder that TMPDIR names, then run the "
        "command again; the journal is unharmed",
    )
