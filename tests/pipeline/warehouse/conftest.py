from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tasc_collector.signing import SigningKey
from tasc_pipeline.warehouse.database import build_views
from tasc_pipeline.warehouse.publish import ManifestSigner, publish
from tasc_pipeline.warehouse.schemas import TRACES, WINDOWS
from tasc_pipeline.warehouse.tables_assessment import WindowRow
from tasc_pipeline.warehouse.tables_collection import ExecutionRow

NOON = datetime(2026, 11, 29, 12, 0, 0, tzinfo=UTC)


@dataclass
class WallClock:
    """A clock that moves only when told."""

    now: datetime = NOON

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **by: float) -> None:
        self.now += timedelta(**by)


@dataclass
class House:
    """A state folder with keys and a clock."""

    home: Path
    signer: ManifestSigner
    clock: WallClock = field(default_factory=WallClock)

    @property
    def root(self) -> Path:
        return self.home / "warehouse"

    def publish_traces(self, window_key: str, rows: Sequence[ExecutionRow]) -> Path:
        part = publish(self.root, "traces", window_key, TRACES.from_rows(rows), sign=self.signer, clock=self.clock)
        return self.root / "traces" / f"window_key={window_key}" / part.file

    def publish_window(self, row: WindowRow) -> None:
        publish(self.root, "windows", row.window_key, WINDOWS.from_rows([row]), sign=self.signer, clock=self.clock)

    def build(self) -> None:
        build_views(self.home, clock=self.clock, keys={self.signer.key_id: self.signer.key.public_key})


@pytest.fixture
def house(tmp_path: Path) -> House:
    home = tmp_path / "state"
    home.mkdir(mode=0o700)
    return House(home, ManifestSigner(SigningKey.generate(), "collector-1"))


Rows = Callable[..., list[ExecutionRow]]


def execution_rows(
    window_key: str = "w1.r01-0a1b2c3d", *, cases: int = 3, seed: int = 1, failures: int = 0
) -> list[ExecutionRow]:
    """Rows of a champion and a candidate with one replicate per case; the candidate is twice as fast."""
    source = random.Random(f"{window_key}/{seed}")
    rows = []
    for role, scale in (("champion", 1.0), ("candidate", 0.5)):
        for case in range(cases):
            failed = role == "candidate" and case < failures
            rows.append(
                ExecutionRow(
                    window_key=window_key,
                    study_id="study-1",
                    role=role,
                    profile_id=f"{role}-profile",
                    case_id=f"case-{case:05d}",
                    group_id=f"group-{case % 2}",
                    replicate=0,
                    trace_id="trace-" + source.randbytes(32).hex(),
                    replicate_id="replicate-" + f"{case:064x}",
                    runtime="vllm",
                    build="0.26.0",
                    model_id="m",
                    route="completions",
                    framing="sse",
                    slices=("short",),
                    weight=1.0,
                    case_length_bucket="chars-256-511" if case % 2 else "chars-64-127",
                    state="accepted",
                    status="failure" if failed else "success",
                    dispatch_state="completed",
                    failure_category="timeout" if failed else None,
                    finish_reason=None if failed else "stop",
                    attempts=1,
                    started_at=1_795_953_600_000 + case,
                    start_hour=1_795_953_600_000,
                    ttft_ms=None if failed else scale * (100.0 + case),
                    itl_p50_ms=None if failed else scale * 10.0,
                    itl_p95_ms=None if failed else scale * 20.0,
                    tpot_ms=None if failed else scale * 11.0,
                    e2e_ms=None if failed else scale * (1000.0 + case),
                    queue_ms=0.5,
                    connect_ms=0.25,
                    input_tokens=64,
                    output_tokens=82,
                    token_event_count=82,
                    tokens_per_event=1.0,
                    timing_flagged=False,
                    request_identity=source.randbytes(32).hex(),
                    terminal_output_identity=None if failed else source.randbytes(32).hex(),
                )
            )
    return rows


@pytest.fixture
def make_rows() -> Rows:
    return execution_rows


@pytest.fixture
def window_row() -> Callable[..., WindowRow]:
    def make(window_key: str, *, window_id: str = "w1", revision: int = 1) -> WindowRow:
        return WindowRow(
            window_key=window_key,
            study_id="study-1",
            study_kind="comparison",
            window_id=window_id,
            revision=revision,
            window_class="observation",
            purpose="comparison",
            lineage_id="study-1",
            event_time_start=1_795_953_600_000,
            event_time_end=1_795_957_200_000,
            ingestion_watermark=1_795_957_200_000,
            closed_at=1_795_957_200_000,
            planned=6,
            accepted=6,
            not_sent=0,
            not_attempted=0,
            declaration_digest="sha256:" + "1" * 64,
            plan_digest="sha256:" + "2" * 64,
            trace_set_digest="sha256:" + "3" * 64,
        )

    return make
