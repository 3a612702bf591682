"""Reasons with their counts: a field of window links and of assessment reports."""

from __future__ import annotations

from tasc_collector.contracts.base import Model
from tasc_collector.contracts.scalars import Count, Slug


class ReasonCount(Model):
    """How many executions share a reason."""

    reason: Slug
    count: Count
