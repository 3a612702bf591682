"""What a person answers for a decision study, because no wire tells it (``tasc-decision-answers-v1``).

One TOML file; the keys are the Python names. What has a default may be left out; ``left_at_default`` then names it in
the copy that the study keeps. Everything else of the protocol is observed, computed, or said to be unknown.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from tasc_collector.contracts.base import Model, Record
from tasc_collector.contracts.operations import DevicePrice, TokenPrice
from tasc_collector.contracts.protocol import (
    EvaluatorIdentity,
    GateBounds,
    Operator,
    RequiredCapability,
    RouteSignalDefinition,
)
from tasc_collector.contracts.rules import UniqueSlugs, require
from tasc_collector.contracts.scalars import Count, Finite, Text

Price = Annotated[TokenPrice | DevicePrice, Field(discriminator="kind")]


class EvaluatorAnswers(EvaluatorIdentity):
    """Whose scores count, and the file of the keys that are trusted for them."""

    trust_file: Annotated[str, StringConstraints(min_length=1, max_length=4096)]
    """An evaluator trust snapshot; it is copied into the study's folder."""


class RouteSignalAnswers(RouteSignalDefinition):
    """The value that a router would decide on, and the thresholds at which it would send a request to the champion."""

    operator: Operator
    thresholds: Annotated[tuple[Finite, ...], Field(min_length=1, max_length=128)]


class GateAnswers(GateBounds):
    """What a policy must reach, and the least measured throughput of a window."""

    minimum_critical_slice_groups: Count = 0
    minimum_output_tokens_per_second: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Null for no capacity gate."""


class CostAnswers(Model):
    """Prices of the champion's and of every candidate's calls, or that there are none."""

    champion: Price | None = None
    candidate: Price | None = None
    unavailable: bool = False
    """True where no price is known; a policy can then not pass its cost gate."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        priced = (self.champion is not None, self.candidate is not None)
        require(priced == ((not self.unavailable,) * 2), "both prices, or unavailable = true")
        return self


class SplitAnswers(Model):
    """How case groups are divided between development and holdout."""

    bucket_count: Annotated[int, Field(ge=2, le=256)] = 10
    holdout_buckets: Annotated[int, Field(ge=1, le=255)] = 3
    """How many of the buckets are held out: the last ones."""
    sample_basis_points: Annotated[int, Field(ge=1, le=10_000)] = 10_000
    """Share of case replicates that a window takes; 10 000 takes all."""

    @model_validator(mode="after")
    def _both(self) -> Self:
        require(self.holdout_buckets < self.bucket_count, "holdoutBuckets must leave a bucket for development")
        return self


class StatisticsAnswers(Model):
    """How the estimate's interval is made."""

    alpha: Annotated[float, Field(gt=0, lt=0.5)] = 0.05
    iterations: Annotated[int, Field(ge=200, le=1_000_000)] = 2_000
    interval: Literal["studentized-cluster-bootstrap", "paired-group-percentile-v1"] = "studentized-cluster-bootstrap"
    sequential: bool = False
    """True for a study that is looked at window after window."""


class DecisionAnswers(Record):
    """``tasc-decision-answers-v1``; see this module."""

    domain: ClassVar[str] = "tasc/decision-answers/v1"

    version: Literal["tasc-decision-answers-v1"] = "tasc-decision-answers-v1"
    evaluator: EvaluatorAnswers
    route_signal: RouteSignalAnswers
    gates: GateAnswers
    cost: CostAnswers
    split: SplitAnswers = SplitAnswers()
    statistics: StatisticsAnswers = StatisticsAnswers()
    critical_slices: Annotated[UniqueSlugs, Field(max_length=64)] = ()
    required_capabilities: Annotated[tuple[RequiredCapability, ...], Field(max_length=3)] = ()
    window_class: Literal["observation", "decisive"] = "decisive"
    left_at_default: Annotated[tuple[Text, ...], Field(max_length=64)] = ()
    """Names of answers that nobody gave, in the copy that the study keeps."""
