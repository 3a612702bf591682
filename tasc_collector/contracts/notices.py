"""How an operator wants to be told: the rules of a study's notices, and what became of the one POST of a notice."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from tasc_collector.contracts.base import Model, Record
from tasc_collector.contracts.scalars import Digest, Reference, Slug, Timestamp
from tasc_collector.contracts.trust_policy import Origin, PathPrefix


class NoticeWebhook(Model):
    """The one place that notices may be posted to. Naming it here is the operator's authorization.

    Args:
        origin: exactly this https origin; plain http is refused.
        path: exactly this path, without query.
        header: secret header field, if the place wants one.
        secret: reference of its value; never the value.
    """

    origin: Origin
    path: PathPrefix
    header: Literal["authorization", "x-api-key"] | None = None
    secret: Reference | None = None

    @model_validator(mode="after")
    def _rules(self) -> Self:
        if not self.origin.startswith("https://"):
            raise ValueError("origin: a notice is posted over https only")
        if (self.header is None) != (self.secret is None):
            raise ValueError("header and secret stand together, or neither does")
        return self


class NoticeRules(Record):
    """``tasc-notice-rules-v1``: a study's ``notices.toml``; every field has a default, so the file may be missing.

    Args:
        agreeing_windows: so many windows in a row must agree before a change of verdict is told.
        period_minutes: time between two windows of the study; null takes the time between its last two that were
            collected, at least an hour.
        webhook: where notices are posted; null posts none.
    """

    domain: ClassVar[str] = "tasc/notice-rules/v1"

    version: Literal["tasc-notice-rules-v1"] = "tasc-notice-rules-v1"
    agreeing_windows: Annotated[int, Field(ge=1, le=100)] = 2
    period_minutes: Annotated[float, Field(gt=0.0, le=44_640.0, allow_inf_nan=False)] | None = None
    webhook: NoticeWebhook | None = None


class NoticePost(Record):
    """``tasc-notice-post-v1``: what became of the POST of one notice.

    ``sent_unknown`` is written before the first byte may leave, so that a notice is never posted twice; only a post that
    is proved ``not_sent`` may be tried again.
    """

    domain: ClassVar[str] = "tasc/notice-post/v1"

    version: Literal["tasc-notice-post-v1"] = "tasc-notice-post-v1"
    notice_digest: Digest
    state: Literal["not_sent", "sent_unknown", "completed"]
    http_status: Annotated[int, Field(ge=100, le=599)] | None
    code: Slug | None
    """Why it did not end well; a word of the transport's list."""
    at: Timestamp
