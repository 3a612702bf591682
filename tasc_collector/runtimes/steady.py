"""The steady part of a token stream: frames that differ in their text only, read the short way.

Rules:

1. A frame is read in full by its dialect first. Only if the dialect says that another frame, equal but for its text,
   would do nothing but add that text and one event, a slot is learned from it (``wire.slot``).
2. The slot serves until the first frame that does not fit; that frame is read in full, and rule 1 begins again. A chunk
   of which every frame fits is not even cut into frames.
3. A slot that served nothing was a waste: the next ones are learned at growing distances, so that a server that changes
   something in each frame (a counter, a time) costs at most a few attempts.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from tasc_collector.canonical import JsonValue
from tasc_collector.runtimes.dialects.base import DialectReader, OpenText
from tasc_collector.wire.json import JsonLimits
from tasc_collector.wire.slot import StringSlot, learn_slot
from tasc_collector.wire.sse import SseDecoder, SseEvent

_MAX_DISTANCE = 256
_MIN_RUN = 3


class SteadyStream:
    """Knows the slot of one stream, if it has one.

    Args:
        decoder: decoder of the stream.
        reader: the dialect's reader, which says what may be left open.
        limits: bounds of the JSON of a frame.
    """

    __slots__ = ("_decoder", "_distance", "_limits", "_reader", "_served", "_slot", "_wait", "open_text")

    def __init__(self, decoder: SseDecoder, reader: DialectReader, limits: JsonLimits) -> None:
        self._decoder, self._reader, self._limits = decoder, reader, limits
        self._slot: StringSlot | None = None
        self._served = False
        self._distance = self._wait = 0
        self.open_text: OpenText | None = None
        """What each text of ``read`` is."""

    @property
    def begun(self) -> bool:
        """True while the next frame is expected to be a steady one."""
        return self._slot is not None

    def read(self, chunk: bytes) -> list[str] | None:
        """The texts of the frames that end in this chunk, if all are steady; else None, and nothing was taken."""
        if self._slot is None:
            return None
        texts = self._decoder.feed_slot(chunk, self._slot)
        if texts is not None:
            self._served = True
        return texts

    def read_each(self, chunks: list[bytes]) -> list[str] | None:
        """The texts of chunks that are one steady frame each; None, and nothing was taken, where one is not."""
        if self._slot is None:
            return None
        texts = self._decoder.feed_each(chunks, self._slot)
        if texts is not None:
            self._served = True
        return texts

    def run(self, events: list[SseEvent], start: int) -> list[str]:
        """The texts of these events from ``start`` on, up to the first that is not steady; that one is to be read in full."""
        if self._slot is None:
            return []
        texts = self._slot.opened(_unnamed(events, start))
        if texts:
            self._served = True
        if start + len(texts) < len(events):
            self._slot = None
            self._distance = 0 if self._served else min(2 * self._distance + 1, _MAX_DISTANCE)
            self._wait = self._distance
        return texts

    def learn(self, name: str, data: str, value: JsonValue, *, coming: int) -> None:
        """Look at a frame that was read in full.

        Args:
            name: its event name.
            data: its text.
            value: what was read from it.
            coming: frames that follow it in the same chunk; a few are read in full sooner than a slot is learned.
        """
        if 0 < coming < _MIN_RUN:
            return
        if self._wait:
            self._wait -= 1
            return
        self.open_text = None if name else self._reader.open_text(value)
        if self.open_text is not None:
            self._slot, self._served = learn_slot(data, value, self.open_text.path, self._limits), False


def _unnamed(events: list[SseEvent], start: int) -> Iterator[str]:
    """Data of the events from ``start`` on, up to the first that has a name."""
    for name, data, _, _ in islice(events, start, None):
        if name:
            return
        yield data
