"""What a report's charts are drawn from: a few hundred numbers, read from the same views that an analyst queries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import duckdb

from tasc_pipeline.warehouse.tables_collection import Role

CURVE_POINTS = 101
"""Percentiles 0 to 100 that describe a distribution."""
STRIP_BUCKETS = 60
"""Time steps between the first call and the last answer; as many before and after are shown where something was sampled."""
STRIP_METRICS = (
    "requests-running",
    "requests-waiting",
    "kv-cache-usage",
    "utilization",
    "power",
    "temperature",
    "memory_used",
)
"""Quantities of servers and devices that the strip shows, most telling first."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A distribution by its percentiles 0 to 100."""

    profile_id: str
    role: Role
    count: int
    percentiles: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Series:
    """A quantity over time; steps in which nothing was measured have no point."""

    label: str
    unit: str
    points: tuple[tuple[float, float], ...]
    """Seconds since the window's first call, value."""


@dataclass(frozen=True, slots=True)
class ServerLatency:
    """A latency as the server itself measured it over the window, from its histogram.

    Quantiles are linear within a bucket, as Prometheus computes them, so they are as coarse as the server's buckets.
    """

    endpoint_alias: str
    metric: str
    """ttft-seconds, itl-seconds, tpot-seconds or e2e-seconds."""
    count: int
    p50_ms: float
    p95_ms: float
    lowest_ms: float | None = None
    """End of the lowest bucket, where all observations lie in it: nothing more is known of them."""


@dataclass(frozen=True, slots=True)
class HarnessScore:
    """A mean of scores of other generations than the window's: shown, in no gate."""

    profile_id: str
    source: str
    score_id: str
    cases: int
    mean: float


@dataclass(frozen=True, slots=True)
class ReportData:
    """Everything that charts show of one window.

    Attributes:
        ttft: per profile, milliseconds.
        itl: per profile, over all gaps of all calls, milliseconds.
        ratios: per candidate and metric, the distribution of paired ratios.
        latency: median TTFT per time step and profile.
        strip: server and device quantities on the same time axis.
        seconds: length of that axis.
        servers: latencies that the servers measured themselves, where they do.
        harness: scores that are no evidence, by profile and metric.
    """

    ttft: tuple[Curve, ...]
    itl: tuple[Curve, ...]
    ratios: Mapping[tuple[str, str], Curve]
    latency: tuple[Series, ...]
    strip: tuple[Series, ...]
    seconds: float
    servers: tuple[ServerLatency, ...] = ()
    harness: tuple[HarnessScore, ...] = ()


_TTFT = """
SELECT profile_id, any_value(role), count(ttft_ms), quantile_cont(ttft_ms, $shares)
FROM traces WHERE window_key = $key AND status = 'success' AND ttft_ms IS NOT NULL
GROUP BY profile_id ORDER BY any_value(role) DESC, profile_id
"""
_ITL = """
SELECT profile_id, any_value(role), count(gap_ns), quantile_cont(gap_ns / 1e6, $shares)
FROM token_events WHERE window_key = $key AND gap_ns IS NOT NULL
GROUP BY profile_id ORDER BY any_value(role) DESC, profile_id
"""
_RATIOS = """
SELECT candidate_profile_id, metric, count(ratio), quantile_cont(ratio, $shares)
FROM (
    SELECT candidate_profile_id, unnest(['ttft', 'tpot', 'e2e']) AS metric,
        unnest([ttft_ratio, tpot_ratio, e2e_ratio]) AS ratio
    FROM paired_deltas WHERE window_key = $key AND both_succeeded
)
WHERE ratio IS NOT NULL
GROUP BY ALL ORDER BY ALL
"""
_SPAN = """
SELECT epoch_ms(min(started_at)), epoch_ms(max(started_at + to_milliseconds(coalesce(e2e_ms, 0)::BIGINT)))
FROM traces WHERE window_key = $key
"""
_LATENCY = """
SELECT profile_id, any_value(role) AS role, floor((epoch_ms(started_at) - $start) / $step)::BIGINT AS bucket,
    median(ttft_ms)
FROM traces WHERE window_key = $key AND status = 'success' AND ttft_ms IS NOT NULL
GROUP BY profile_id, bucket ORDER BY role DESC, profile_id, bucket
"""
_STRIP = """
SELECT label, metric, unit, floor((epoch_ms(sampled_at) - $start) / $step)::BIGINT AS bucket, avg(value)
FROM (
    SELECT endpoint_alias AS label, metric, '' AS unit, sampled_at, value
    FROM metric_samples WHERE window_key = $key AND labels = ''
    UNION ALL
    SELECT node_id || ' ' || device_id, metric, CASE unit WHEN 'bytes' THEN 'GiB' ELSE unit END, sampled_at,
        CASE unit WHEN 'bytes' THEN value / 2.0**30 ELSE value END
    FROM device_samples WHERE window_key = $key AND device_kind = 'accelerator'
)
WHERE list_contains($metrics, metric) AND value IS NOT NULL AND bucket BETWEEN -$buckets AND 2 * $buckets
GROUP BY label, metric, unit, bucket ORDER BY list_position($metrics, metric), label, bucket
"""

_SERVERS = """
SELECT endpoint_alias, metric, lower_bound_s, upper_bound_s, sum(observations)::BIGINT
FROM metric_histograms WHERE window_key = $key AND labels = ''
GROUP BY ALL ORDER BY endpoint_alias, metric, lower_bound_s
"""

_HARNESS = """
SELECT profile_id, source, score_id, count(*), avg(score) FROM reported_scores
WHERE window_key = $key AND evidence_digest IS NULL GROUP BY ALL ORDER BY ALL
"""


def load(session: duckdb.DuckDBPyConnection, window_key: str) -> ReportData:
    """Read one window's numbers.

    Args:
        session: as ``database.connect`` gives it.
        window_key: the window.
    """
    key = {"key": window_key}
    shares = {"shares": [step / (CURVE_POINTS - 1) for step in range(CURVE_POINTS)]}
    start, end = session.execute(_SPAN, key).fetchone() or (None, None)
    seconds = 0.0 if start is None or end is None else max((end - start) / 1000, 0.001)
    step = max(seconds * 1000 / STRIP_BUCKETS, 1.0)
    axis = {"start": start or 0, "step": step}
    return ReportData(
        ttft=_curves(session.execute(_TTFT, key | shares).fetchall()),
        itl=_curves(session.execute(_ITL, key | shares).fetchall()),
        ratios={
            (row[0], row[1]): Curve(row[0], "candidate", row[2], tuple(row[3]))
            for row in session.execute(_RATIOS, key | shares).fetchall()
        },
        latency=_series(
            ((row[0], "ms", row[2], row[3]) for row in session.execute(_LATENCY, key | axis).fetchall()), step
        ),
        strip=_series(
            (
                (f"{row[1]} of {row[0]}", row[2], row[3], row[4])
                for row in session.execute(
                    _STRIP, key | axis | {"metrics": list(STRIP_METRICS), "buckets": STRIP_BUCKETS}
                ).fetchall()
            ),
            step,
        ),
        seconds=seconds,
        servers=_servers(session.execute(_SERVERS, key).fetchall()),
        harness=tuple(HarnessScore(*row) for row in session.execute(_HARNESS, key).fetchall()),
    )


def _curves(rows: Sequence[tuple[str, Role, int, Sequence[float]]]) -> tuple[Curve, ...]:
    return tuple(Curve(profile, role, count, tuple(percentiles)) for profile, role, count, percentiles in rows)


def _series(rows: Iterable[tuple[str, str, int, float]], step_ms: float) -> tuple[Series, ...]:
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for label, unit, bucket, value in rows:
        found.setdefault((label, unit), []).append(((bucket + 0.5) * step_ms / 1000, value))
    return tuple(Series(label, unit, tuple(points)) for (label, unit), points in found.items())


def _servers(rows: Sequence[tuple[str, str, float, float | None, int]]) -> tuple[ServerLatency, ...]:
    found: list[ServerLatency] = []
    for (alias, metric), group in groupby(rows, key=lambda row: (row[0], row[1])):
        buckets = [(low, high, count) for _, _, low, high, count in group]
        p50, p95 = (1000 * _quantile(buckets, share) for share in (0.5, 0.95))
        low, high, _ = buckets[0]
        lowest_ms = 1000 * high if len(buckets) == 1 and low == 0.0 and high is not None else None
        found.append(ServerLatency(alias, metric, sum(count for _, _, count in buckets), p50, p95, lowest_ms))
    return tuple(found)


def _quantile(buckets: Sequence[tuple[float, float | None, int]], share: float) -> float:
    """Quantile in seconds, linear within its bucket, as ``histogram_quantile`` of Prometheus; no bucket is empty."""
    rank = share * sum(count for _, _, count in buckets)
    for low, high, count in buckets:
        if count >= rank:
            return low if high is None else low + (high - low) * rank / count
        rank -= count
    return buckets[-1][0]
