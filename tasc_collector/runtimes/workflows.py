"""Where twelve other local inference workflows stand. None is registered; nothing is sent to them.

A popular server does not get a generic adapter because its JSON looks familiar. Where the wire is known well enough to
read a captured answer, the flags for that stand beside the entry; they are evidence about no build.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tasc_collector.canonical import JsonValue
from tasc_collector.runtimes.profile import Route


class Standing(StrEnum):
    """What the project does about a workflow."""

    CANDIDATE = "candidate for a profile"
    OWN_PROFILE_NEEDED = "needs a profile of its own"
    ORCHESTRATION = "orchestration around a registered runtime"


@dataclass(frozen=True, slots=True)
class Workflow:
    """One workflow that is not registered.

    Args:
        name: its name.
        standing: what the project does about it.
        reason: why, in one or two sentences.
        flags: dialect flags by route with which a captured answer can be read.
    """

    name: str
    standing: Standing
    reason: str
    flags: Mapping[Route, Mapping[str, JsonValue]] = field(default_factory=dict)


WORKFLOWS: tuple[Workflow, ...] = (
    Workflow(
        "LocalAI",
        Standing.CANDIDATE,
        "Many backends behind one shape: it needs contract tests per backend. Reasons are empty texts until the last"
        " chunk, and zeros stand on every chunk before the real usage.",
        {Route.CHAT_COMPLETIONS: {"usage_position": "every"}},
    ),
    Workflow(
        "llama-cpp-python server",
        Standing.OWN_PROFILE_NEEDED,
        "Not the contract of the llama.cpp server: no usage in streams, and a new request ends a running stream with"
        " [DONE] and no finish reason.",
        {Route.CHAT_COMPLETIONS: {"usage_required": False}, Route.COMPLETIONS: {"usage_required": False}},
    ),
    Workflow(
        "MLC LLM REST server",
        Standing.CANDIDATE,
        "Needs fixtures for streaming, usage, cancellation and identity of a released build.",
    ),
    Workflow(
        "Jan API server",
        Standing.CANDIDATE,
        "A desktop server in front of llama.cpp; only for explicitly approved local use.",
    ),
    Workflow(
        "BentoML",
        Standing.ORCHESTRATION,
        "Packages an application; what answers is the runtime that is mounted in it.",
    ),
    Workflow(
        "Transformers Serve",
        Standing.OWN_PROFILE_NEEDED,
        "First in line now that TGI is archived. No [DONE] at all, usage on the finish chunk, no event lines on"
        " Responses, streams unless told not to, and an error frame that may not be JSON.",
        {
            Route.CHAT_COMPLETIONS: {"has_done": False, "usage_position": "finish"},
            Route.COMPLETIONS: {"has_done": False, "usage_position": "finish"},
            Route.RESPONSES: {"has_done": False, "event_lines": False},
        },
    ),
    Workflow(
        "Xinference",
        Standing.OWN_PROFILE_NEEDED,
        "Backend and authentication change identity and wire. Lines end with CRLF, and an error frame ends the stream.",
        {Route.CHAT_COMPLETIONS: {}},
    ),
    Workflow(
        "NVIDIA Triton OpenAI frontend",
        Standing.CANDIDATE,
        "A frontend over vLLM or TensorRT-LLM backends; direct coverage of trtllm-serve does not cover it.",
    ),
    Workflow(
        "NVIDIA NIM for LLMs",
        Standing.OWN_PROFILE_NEEDED,
        "A proxy before vLLM with routes of its own; needs the exact image, model profile and backend identity.",
    ),
    Workflow(
        "NVIDIA Dynamo",
        Standing.OWN_PROFILE_NEEDED,
        "Frontend, router and workers: must bind build, configuration and the engine below. [DONE] follows Responses"
        " too, truncation is response.incomplete, errors are flat, and health is good with no workers.",
        {
            Route.CHAT_COMPLETIONS: {"error_frame_shape": ["flat"]},
            Route.COMPLETIONS: {"error_frame_shape": ["flat"]},
            Route.RESPONSES: {"has_done": True, "event_lines": True, "status_tells_truncation": True},
        },
    ),
    Workflow(
        "llamafile",
        Standing.CANDIDATE,
        "One file with its own llama.cpp revision, so its own build and contract.",
    ),
    Workflow(
        "DeepSpeed-MII",
        Standing.CANDIDATE,
        "gRPC with an optional REST gateway; needs separate contract tests of a released build.",
    ),
)
"""The workflows of the project's support document, in its order."""
