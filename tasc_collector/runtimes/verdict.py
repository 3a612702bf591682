"""The words of a verdict: outcome, reason and finish reason. Every one is allowlisted; none is ever a provider's text.

Rules of precedence, first that applies:

1. An error frame or error body, at any position, is ``provider_error``; nothing after it is read.
2. The first thing that the dialect does not allow is ``protocol_violation``; nothing after it is read.
3. A transport that did not end cleanly is ``truncated``, whatever was seen.
4. A missing terminator, finish reason or usage is ``truncated``.
5. Only then, with all evidence present, the answer is ``completed``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Outcome(StrEnum):
    """What one answer is as evidence."""

    COMPLETED = "completed"
    TRUNCATED = "truncated"
    PROVIDER_ERROR = "provider_error"
    PROTOCOL_VIOLATION = "protocol_violation"


class FinishReason(StrEnum):
    """Canonical finish reasons. ``UNAVAILABLE``: the answer is complete and its dialect cannot say why it ended."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    FUNCTION_CALL = "function_call"
    CONTENT_FILTER = "content_filter"
    REPETITION = "repetition"
    CANCELLED = "cancelled"
    ERROR = "error"
    LOAD = "load"
    UNLOAD = "unload"
    UNAVAILABLE = "reason-unavailable"


class AnswerReason(StrEnum):
    """Why an answer has its outcome: ``OUTCOME_OF`` has the outcome of each word, ``MEANING`` what it means."""

    COMPLETED = "completed"
    TRANSPORT_CUT = "transport-cut"
    EMPTY_BODY = "empty-body"
    FRAME_INCOMPLETE = "frame-incomplete"
    TERMINATOR_MISSING = "terminator-missing"
    FINISH_REASON_MISSING = "finish-reason-missing"
    FINISH_ABORTED = "finish-aborted"
    USAGE_MISSING = "usage-missing"
    NOT_DONE = "not-done"
    ERROR_FRAME = "error-frame"
    ERROR_BODY = "error-body"
    FINISH_ERROR = "finish-error"
    RESPONSE_FAILED = "response-failed"
    HTTP_STATUS = "http-status"
    AFTER_TERMINATOR = "after-terminator"
    CHOICE_UNEXPECTED = "choice-unexpected"
    CONTENT_TYPE_MISMATCH = "content-type-mismatch"
    ERROR_FRAME_INVALID = "error-frame-invalid"
    EVENT_NAME_MISMATCH = "event-name-mismatch"
    EVENT_ORDER = "event-order"
    EVENT_UNKNOWN = "event-unknown"
    FINISH_REASON_CONFLICT = "finish-reason-conflict"
    FINISH_REASON_UNKNOWN = "finish-reason-unknown"
    FRAMING_INVALID = "framing-invalid"
    ITEM_UNEXPECTED = "item-unexpected"
    JSON_INVALID = "json-invalid"
    LIMIT_EXCEEDED = "limit-exceeded"
    MODEL_MISMATCH = "model-mismatch"
    MODEL_MISSING = "model-missing"
    NO_OUTPUT = "no-output"
    NOT_AN_INFERENCE = "not-an-inference"
    NOT_AN_OBJECT = "not-an-object"
    OUTPUT_AFTER_FINISH = "output-after-finish"
    REMOTE_MODEL = "remote-model"
    SEQUENCE_BROKEN = "sequence-broken"
    SHAPE_INVALID = "shape-invalid"
    STATE_STORED = "state-stored"
    USAGE_INVALID = "usage-invalid"


MEANING: Mapping[AnswerReason, str] = {
    AnswerReason.COMPLETED: "All evidence of a finished answer is there.",
    AnswerReason.TRANSPORT_CUT: "The body did not end as its HTTP framing says it must.",
    AnswerReason.EMPTY_BODY: "The body ended cleanly without one frame.",
    AnswerReason.FRAME_INCOMPLETE: "The body ended inside a frame.",
    AnswerReason.TERMINATOR_MISSING: "The dialect's last frame was not seen.",
    AnswerReason.FINISH_REASON_MISSING: "A choice has no finish reason.",
    AnswerReason.FINISH_ABORTED: "The server says that it aborted or cancelled the generation.",
    AnswerReason.USAGE_MISSING: "No usage where the profile says it must be.",
    AnswerReason.NOT_DONE: "A whole body says of itself that it is not finished.",
    AnswerReason.ERROR_FRAME: "An error inside a stream.",
    AnswerReason.ERROR_BODY: "A body that is an error, whatever its status.",
    AnswerReason.FINISH_ERROR: "The finish reason is an error.",
    AnswerReason.RESPONSE_FAILED: "A Responses object with status failed.",
    AnswerReason.HTTP_STATUS: "The status is not a success; the body is not read as an answer.",
    AnswerReason.AFTER_TERMINATOR: "Something follows the dialect's last frame.",
    AnswerReason.CHOICE_UNEXPECTED: "A choice that was not asked for.",
    AnswerReason.CONTENT_TYPE_MISMATCH: "The media type is not the one of the framing that was asked for.",
    AnswerReason.ERROR_FRAME_INVALID: "A frame that begins as an error but is not JSON.",
    AnswerReason.EVENT_NAME_MISMATCH: "The SSE event name is not the type inside its data.",
    AnswerReason.EVENT_ORDER: "An event where the dialect does not allow it.",
    AnswerReason.EVENT_UNKNOWN: "An event type that the dialect does not have.",
    AnswerReason.FINISH_REASON_CONFLICT: "Two finish reasons for one choice.",
    AnswerReason.FINISH_REASON_UNKNOWN: "A finish reason that is not in the profile's map.",
    AnswerReason.FRAMING_INVALID: "Bytes that the framing does not allow; `Answer.wire_code` says which rule.",
    AnswerReason.ITEM_UNEXPECTED: "An output item that was not asked for.",
    AnswerReason.JSON_INVALID: "A frame or body that is not strict JSON; `Answer.wire_code` says which rule.",
    AnswerReason.LIMIT_EXCEEDED: "A bound of ours was reached; `Answer.wire_code` says which. It says nothing about the model.",
    AnswerReason.MODEL_MISMATCH: "The answer names another model than was asked for.",
    AnswerReason.MODEL_MISSING: "The answer names no model although its dialect does.",
    AnswerReason.NO_OUTPUT: "The terminator came, and not one choice or output item.",
    AnswerReason.NOT_AN_INFERENCE: "The server loaded or unloaded a model instead.",
    AnswerReason.NOT_AN_OBJECT: "A frame or body is JSON, but not an object.",
    AnswerReason.OUTPUT_AFTER_FINISH: "A choice went on after its finish reason.",
    AnswerReason.REMOTE_MODEL: "A runtime that must be local passed the call on to a remote host.",
    AnswerReason.SEQUENCE_BROKEN: "Sequence numbers do not rise one by one.",
    AnswerReason.SHAPE_INVALID: "A field is missing or has another type than the dialect gives it.",
    AnswerReason.STATE_STORED: "The server stored the answer although the request forbade it.",
    AnswerReason.USAGE_INVALID: "A token count is not a plausible non-negative integer.",
}
"""What each reason means."""

_TRUNCATED = (
    AnswerReason.TRANSPORT_CUT,
    AnswerReason.EMPTY_BODY,
    AnswerReason.FRAME_INCOMPLETE,
    AnswerReason.TERMINATOR_MISSING,
    AnswerReason.FINISH_REASON_MISSING,
    AnswerReason.FINISH_ABORTED,
    AnswerReason.USAGE_MISSING,
    AnswerReason.NOT_DONE,
)
_PROVIDER = (
    AnswerReason.ERROR_FRAME,
    AnswerReason.ERROR_BODY,
    AnswerReason.FINISH_ERROR,
    AnswerReason.RESPONSE_FAILED,
    AnswerReason.HTTP_STATUS,
)

OUTCOME_OF: Mapping[AnswerReason, Outcome] = {
    **dict.fromkeys(AnswerReason, Outcome.PROTOCOL_VIOLATION),
    AnswerReason.COMPLETED: Outcome.COMPLETED,
    **dict.fromkeys(_TRUNCATED, Outcome.TRUNCATED),
    **dict.fromkeys(_PROVIDER, Outcome.PROVIDER_ERROR),
}
"""The outcome that each reason stands for."""

VERDICT_OF_FINISH: Mapping[FinishReason, AnswerReason] = {
    **dict.fromkeys(FinishReason, AnswerReason.COMPLETED),
    FinishReason.CANCELLED: AnswerReason.FINISH_ABORTED,
    FinishReason.ERROR: AnswerReason.FINISH_ERROR,
    FinishReason.LOAD: AnswerReason.NOT_AN_INFERENCE,
    FinishReason.UNLOAD: AnswerReason.NOT_AN_INFERENCE,
}
"""What a finish reason makes of an answer that is otherwise whole."""


class Verdict(Exception):  # a verdict ends the reading; it is not an error of this process
    """Ends the reading of one answer. It never leaves ``runtimes``: ``AnswerReader`` turns it into the outcome."""

    def __init__(self, reason: AnswerReason, wire_code: str | None = None) -> None:
        super().__init__(reason.value)
        self.reason, self.wire_code = reason, wire_code
