"""Chunks of the OpenAI dialect, and a reader of any body on any route."""

from __future__ import annotations

from typing import Any, Protocol

import pytest

from tasc_collector.runtimes.profile import Framing, Route
from tasc_collector.runtimes.result import Answer
from tests.support.answers import MODEL, one, read


class Reads(Protocol):
    """Reads a body as an answer of one runtime's route."""

    def __call__(
        self, runtime: str, route: Route, framing: Framing, body: bytes, *, clean_end: bool = True, **options: Any
    ) -> Answer: ...


class Chunks:
    """Builds chunks of a chat stream."""

    def text(self, text: str, finish: str | None = None, index: int = 0, **more: Any) -> dict[str, Any]:
        """A chunk with text."""
        return self.delta({"content": text}, finish, index, **more)

    def delta(self, delta: dict[str, Any], finish: str | None = None, index: int = 0, **more: Any) -> dict[str, Any]:
        """A chunk with any delta; further fields go into the chunk."""
        return {"model": MODEL, "choices": [{"index": index, "delta": delta, "finish_reason": finish}], **more}

    def usage(self, tokens_in: Any = 5, tokens_out: Any = 3, total: Any = 8, **more: Any) -> dict[str, Any]:
        """A usage chunk with empty choices."""
        counts = {"prompt_tokens": tokens_in, "completion_tokens": tokens_out, "total_tokens": total, **more}
        return {"model": MODEL, "choices": [], "usage": counts}

    def error(self) -> dict[str, Any]:
        """An error frame."""
        return {"error": {"message": "made-up failure text", "type": "InternalServerError", "code": 500}}


@pytest.fixture
def chunks() -> Chunks:
    """Builds chunks of a chat stream."""
    return Chunks()


@pytest.fixture
def reads() -> Reads:
    """Reads any body as an answer."""

    def reading(
        runtime: str, route: Route, framing: Framing, body: bytes, *, clean_end: bool = True, **options: Any
    ) -> Answer:
        return read(one(runtime, route, framing), body, clean_end=clean_end, **options)

    return reading
