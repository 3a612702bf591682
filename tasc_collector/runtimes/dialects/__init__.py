"""Readers of answer bodies: one small state machine per dialect, told apart by ``DialectFlags`` only."""

from __future__ import annotations

from collections.abc import Mapping

from tasc_collector.runtimes.dialects.base import DialectReader
from tasc_collector.runtimes.dialects.lm_studio import LmStudioReader
from tasc_collector.runtimes.dialects.ollama import OllamaReader
from tasc_collector.runtimes.dialects.openai import ChatReader, CompletionsReader
from tasc_collector.runtimes.dialects.responses import ResponsesReader
from tasc_collector.runtimes.dialects.tgi import TgiReader
from tasc_collector.runtimes.profile import Protocol

READERS: Mapping[Protocol, type[DialectReader]] = {
    Protocol.OPENAI_CHAT: ChatReader,
    Protocol.OPENAI_COMPLETIONS: CompletionsReader,
    Protocol.OPENAI_RESPONSES: ResponsesReader,
    Protocol.OLLAMA_CHAT: OllamaReader,
    Protocol.OLLAMA_GENERATE: OllamaReader,
    Protocol.TGI_GENERATE: TgiReader,
    Protocol.LM_STUDIO_CHAT: LmStudioReader,
}
"""The reader of each protocol."""

__all__ = ["READERS", "DialectReader"]
