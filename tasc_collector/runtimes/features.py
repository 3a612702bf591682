"""What a canary asks for besides text, in each protocol's own spelling. Pure tables.

Only probes ask for these; a study's calls never do. A protocol without an entry has no such request here.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from tasc_collector.canonical import JsonValue
from tasc_collector.runtimes.vocabulary import Protocol


class Feature(StrEnum):
    """Optional features of one generation that a canary can ask for."""

    LOGPROBS = "logprobs"
    STRUCTURED_OUTPUT = "structured-output"
    TOOLS = "tools"


ANSWER_FIELD: Final = "prime"
ANSWER_SCHEMA: Final[JsonValue] = {
    "type": "object",
    "properties": {ANSWER_FIELD: {"type": "integer"}},
    "required": [ANSWER_FIELD],
    "additionalProperties": False,
}
"""The schema of structured output and of the tool's argument: one integer."""
_NAMED: Final[Mapping[str, JsonValue]] = {
    "name": "report_prime",
    "description": "Report a prime number.",
    "parameters": ANSWER_SCHEMA,
}
_TOOL: Final[JsonValue] = {"type": "function", "function": dict(_NAMED)}
_STRICT: Final[Mapping[str, JsonValue]] = {"name": "prime", "schema": ANSWER_SCHEMA, "strict": True}
_FORMAT: Final[JsonValue] = {"type": "json_schema", **_STRICT}
_GRAMMAR: Final[JsonValue] = {"type": "json", "value": ANSWER_SCHEMA}

FEATURE_FIELDS: Final[Mapping[tuple[Protocol, Feature], Mapping[str, JsonValue]]] = {
    (Protocol.OPENAI_CHAT, Feature.LOGPROBS): {"logprobs": True, "top_logprobs": 1},
    (Protocol.OPENAI_CHAT, Feature.STRUCTURED_OUTPUT): {
        "response_format": {"type": "json_schema", "json_schema": dict(_STRICT)},
    },
    (Protocol.OPENAI_CHAT, Feature.TOOLS): {"tools": [_TOOL], "tool_choice": "required"},
    (Protocol.OPENAI_COMPLETIONS, Feature.LOGPROBS): {"logprobs": 1},
    (Protocol.OPENAI_RESPONSES, Feature.STRUCTURED_OUTPUT): {"text": {"format": _FORMAT}},
    (Protocol.OPENAI_RESPONSES, Feature.TOOLS): {"tools": [{"type": "function", **_NAMED}], "tool_choice": "required"},
    (Protocol.OLLAMA_CHAT, Feature.LOGPROBS): {"logprobs": True},
    (Protocol.OLLAMA_CHAT, Feature.STRUCTURED_OUTPUT): {"format": ANSWER_SCHEMA},
    (Protocol.OLLAMA_CHAT, Feature.TOOLS): {"tools": [_TOOL]},
    (Protocol.OLLAMA_GENERATE, Feature.LOGPROBS): {"logprobs": True},
    (Protocol.OLLAMA_GENERATE, Feature.STRUCTURED_OUTPUT): {"format": ANSWER_SCHEMA},
    (Protocol.TGI_GENERATE, Feature.LOGPROBS): {"parameters.details": True},
    (Protocol.TGI_GENERATE, Feature.STRUCTURED_OUTPUT): {"parameters.grammar": _GRAMMAR},
}
"""Dotted field of the request body to its value (protocol sources of the pinned builds)."""
