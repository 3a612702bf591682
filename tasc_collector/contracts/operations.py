"""Records around a study: key ring, cost model, analysis plan, notice."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from tasc_collector.contracts.authority import PublicKeySpki
from tasc_collector.contracts.base import Model, Record
from tasc_collector.contracts.scalars import Digest, NonNegative, Positive, Ratio, Slug, Timestamp, WindowKey

KeyRole = Literal["operator", "dispatch", "collector", "evaluator"]


class RingKey(Model):
    """One public key: its role, validity, and when it was revoked."""

    key_id: Slug
    role: KeyRole
    algorithm: Literal["ed25519"] = "ed25519"
    public_key_spki: PublicKeySpki
    valid_from: Timestamp
    valid_until: Timestamp
    revoked_at: Timestamp | None

    @model_validator(mode="after")
    def _interval(self) -> Self:
        if self.valid_from >= self.valid_until:
            raise ValueError("validUntil is after validFrom")
        return self


class KeyRing(Record):
    """``tasc-key-ring-v1``: which public key had which role when."""

    domain: ClassVar[str] = "tasc/key-ring/v1"

    version: Literal["tasc-key-ring-v1"] = "tasc-key-ring-v1"
    keys: Annotated[tuple[RingKey, ...], Field(max_length=1024)]

    @model_validator(mode="after")
    def _unique(self) -> Self:
        if len({key.key_id for key in self.keys}) != len(self.keys):
            raise ValueError("keys: key ids are unique")
        if len({key.public_key_spki for key in self.keys}) != len(self.keys):
            raise ValueError("keys: one key has one role")
        return self


class TokenPrice(Model):
    """US dollars per million tokens."""

    kind: Literal["token-price"]
    input_usd_per_million: NonNegative
    cached_input_usd_per_million: NonNegative | None
    output_usd_per_million: NonNegative


class DevicePrice(Model):
    """US dollars per device and second, for as many devices as the profile holds, shared by its concurrent calls."""

    kind: Literal["device-second"]
    usd_per_device_second: NonNegative
    devices: Positive


class ProfileCost(Model):
    """How one profile's calls are priced."""

    profile_id: Slug
    price: Annotated[TokenPrice | DevicePrice, Field(discriminator="kind")]


class CostModel(Record):
    """``tasc-cost-model-v1``; what it gives is evidence class ``modeled``."""

    domain: ClassVar[str] = "tasc/cost-model/v1"

    version: Literal["tasc-cost-model-v1"] = "tasc-cost-model-v1"
    model_id: Slug
    currency: Literal["USD"] = "USD"
    profiles: Annotated[tuple[ProfileCost, ...], Field(min_length=1, max_length=16)]


class AnalysisPlan(Record):
    """``tasc-analysis-plan-v1``: how a decision study is analysed, pinned before its first window."""

    domain: ClassVar[str] = "tasc/analysis-plan/v1"

    version: Literal["tasc-analysis-plan-v1"] = "tasc-analysis-plan-v1"
    study_id: Slug
    protocol_digest: Digest
    timing_source: Literal["timeline", "envelope"]
    interval: Literal["studentized-cluster-bootstrap", "paired-group-percentile-v1"]
    confidence: Ratio
    draws: Positive
    seed: Slug
    sequential: bool
    minimum_coverage: Ratio
    slice_gates: Annotated[tuple[Slug, ...], Field(max_length=64)]
    pinned_at: Timestamp


class Notice(Record):
    """``tasc-notice-v1``: something changed that a person should look at; no content, no name of a case."""

    domain: ClassVar[str] = "tasc/notice/v1"

    version: Literal["tasc-notice-v1"] = "tasc-notice-v1"
    kind: Literal["verdict-changed", "coverage-low", "window-missing", "run-failed"]
    study_id: Slug
    window_key: WindowKey | None
    before: Slug | None
    after: Slug | None
    at: Timestamp
