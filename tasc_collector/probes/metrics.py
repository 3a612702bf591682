"""From what a server exposes to canonical metrics, by the profile's own map. Pure.

Rules:

1. The first name of a source that is present counts. A metric that is not there is null, never zero.
2. Copies of one series that differ only in their process id are one series: several API servers repeat the gauges of
   one engine (vLLM 0.26.0), and so do multiprocess registries (SGLang 0.5.16).
3. What remains is added (requests, tokens) or its greatest is taken (a utilization). The one number has no labels;
   where there were several series each is kept beside it with its labels.
4. A series with a label that is not known here makes the whole metric null: guessing would add what must not be added.
5. Series of a histogram are added only where their bounds are equal; bounds and sums are in seconds.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from tasc_collector.canonical import MAX_SAFE_INTEGER, JsonValue
from tasc_collector.contracts.observations import HistogramValue, Label, MetricValue
from tasc_collector.errors import InputError
from tasc_collector.runtimes.profile import CanonicalMetric, MetricFormat, MetricSource, Reduce, RuntimeProfile
from tasc_collector.runtimes.state import path_like
from tasc_collector.wire.prometheus import Sample, parse_prometheus

Labels: TypeAlias = tuple[Label, ...]
Index: TypeAlias = Mapping[str, Sequence[Sample]]

METRIC_NAMES: Final[Mapping[CanonicalMetric, str]] = {
    CanonicalMetric.REQUESTS_RUNNING: "requests-running",
    CanonicalMetric.REQUESTS_WAITING: "requests-waiting",
    CanonicalMetric.KV_CACHE_UTILIZATION: "kv-cache-usage",
    CanonicalMetric.PROMPT_TOKENS_TOTAL: "prompt-tokens-total",
    CanonicalMetric.GENERATION_TOKENS_TOTAL: "generation-tokens-total",
    CanonicalMetric.TTFT_SECONDS: "ttft-seconds",
    CanonicalMetric.ITL_SECONDS: "itl-seconds",
    CanonicalMetric.TPOT_SECONDS: "tpot-seconds",
    CanonicalMetric.E2E_SECONDS: "e2e-seconds",
}
"""Names in records and tables."""
SCALARS: Final = tuple(METRIC_NAMES)[:5]
HISTOGRAMS: Final = tuple(METRIC_NAMES)[5:]
_PROCESS: Final = "pid"
_KNOWN_LABELS: Final = frozenset(
    {
        "model_name",
        "engine",
        "engine_type",
        "tp_rank",
        "pp_rank",
        "dp_rank",
        "moe_ep_rank",
        _PROCESS,
        "le",
    }
)
"""Labels of the pinned builds' canonical families."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Canonical metrics of one scrape.

    Args:
        values: every scalar metric once without labels, then series with labels where there were several.
        histograms: histograms that are there.
        ignored_samples: samples that belong to no canonical metric.
        non_finite_samples: NaN and infinite ones, kept out.
    """

    values: tuple[MetricValue, ...]
    histograms: tuple[HistogramValue, ...]
    ignored_samples: int
    non_finite_samples: int

    def value(self, metric: CanonicalMetric) -> float | None:
        """The one number of a metric."""
        name = METRIC_NAMES[metric]
        return next(item.value for item in self.values if item.metric == name and not item.labels)

    def histogram(self, metric: CanonicalMetric) -> HistogramValue | None:
        """The histogram of a metric, over all series."""
        name = METRIC_NAMES[metric]
        return next((item for item in self.histograms if item.metric == name), None)


NOTHING: Final = Reading(tuple(MetricValue(metric=METRIC_NAMES[m], labels=(), value=None) for m in SCALARS), (), 0, 0)
"""What a scrape says that failed, and a server that has no metrics."""


def read_prometheus(profile: RuntimeProfile, body: bytes) -> Reading:
    """Canonical metrics of one Prometheus exposition.

    Args:
        profile: whose map is used.
        body: the whole text.

    Raises:
        WireError: the text is not a bounded exposition.
    """
    exposition = parse_prometheus(body)
    index: dict[str, list[Sample]] = defaultdict(list)
    total = 0
    for family in exposition.families.values():
        total += len(family.samples)
        for sample in family.samples:
            index[sample.name].append(sample)
    sources = {m: s for m, s in profile.metrics.items() if s.format is MetricFormat.PROMETHEUS}
    values: list[MetricValue] = []
    used = 0
    for metric in SCALARS:
        series, taken = _series(index, sources.get(metric))
        used += taken
        values.extend(_reduced(METRIC_NAMES[metric], series, sources.get(metric)))
    histograms: list[HistogramValue] = []
    for metric in HISTOGRAMS:
        found, taken = _histogram(index, METRIC_NAMES[metric], sources.get(metric))
        used += taken
        histograms.extend(found)
    return Reading(tuple(values), tuple(histograms), total - used, exposition.non_finite)


def read_iterations(profile: RuntimeProfile, rows: Sequence[JsonValue]) -> Reading:
    """Canonical metrics of the newest of the iteration records (TensorRT-LLM 1.2.1 ``/metrics``).

    Args:
        profile: whose map is used.
        rows: the records, oldest first; none at all is no error, and every metric is then null.

    Raises:
        InputError: a record is no object, or a number in it is not finite.
    """
    if not all(isinstance(row, dict) for row in rows):
        raise InputError("an iteration record is not an object", way_out="check the server's build")
    newest = rows[-1] if rows else {}
    values = []
    for metric in SCALARS:
        source = profile.metrics.get(metric)
        number = None
        if source is not None and source.format is MetricFormat.JSON:
            parts = [_number(newest, name) for name in source.names]
            number = parts[0] if source.reduce is not Reduce.RATIO else _ratio(parts)
        values.append(MetricValue(metric=METRIC_NAMES[metric], labels=(), value=number))
    return Reading(tuple(values), (), 0, 0)


def _series(index: Index, source: MetricSource | None) -> tuple[dict[Labels, float], int]:
    """Series of the first name that is present, copies dropped (rules 1, 2, 4), and the samples that were taken."""
    name = next((name for name in source.names if index.get(name)), None) if source is not None else None
    if name is None:
        return {}, 0
    samples = index[name]
    if not _labels_known(samples):
        return {}, 0
    series: dict[Labels, float] = {}
    for sample in samples:
        key = _without(sample.labels, _PROCESS)
        series[key] = max(series.get(key, -math.inf), sample.value)
    return series, len(samples)


def _reduced(name: str, series: Mapping[Labels, float], source: MetricSource | None) -> list[MetricValue]:
    if not series or source is None:
        return [MetricValue(metric=name, labels=(), value=None)]
    one = max(series.values()) if source.reduce is Reduce.MAX else math.fsum(series.values())
    found = [MetricValue(metric=name, labels=(), value=one)]
    if len(series) > 1:
        found += [
            MetricValue(metric=name, labels=_shown(labels), value=value) for labels, value in sorted(series.items())
        ]
    return found


def _histogram(index: Index, name: str, source: MetricSource | None) -> tuple[list[HistogramValue], int]:
    family = None if source is None else next((n for n in source.names if index.get(f"{n}_bucket")), None)
    if family is None:
        return [], 0
    buckets = index[f"{family}_bucket"]
    sums = {(_without(s.labels, _PROCESS)): s.value for s in index.get(f"{family}_sum", ())}
    if not _labels_known(buckets):
        return [], 0
    series: dict[Labels, dict[float, float]] = defaultdict(dict)
    for sample in buckets:
        bound = float(dict(sample.labels).get("le", "nan"))
        key = _without(_without(sample.labels, "le"), _PROCESS)
        series[key][bound] = max(series[key].get(bound, 0.0), sample.value)
    bounds = [tuple(sorted(counts)) for counts in series.values()]
    if any(b != bounds[0] for b in bounds) or not bounds[0] or bounds[0][-1] != math.inf:
        return [], 0
    added = [sum(counts[bound] for counts in series.values()) for bound in bounds[0]]
    if not all(count == int(count) and 0 <= count <= MAX_SAFE_INTEGER for count in added) or added != sorted(added):
        return [], 0
    whole = math.fsum(sums[key] for key in series) if all(key in sums for key in series) else None
    value = HistogramValue(
        metric=name,
        labels=(),
        upper_bounds=bounds[0][:-1],
        cumulative_counts=tuple(int(count) for count in added),
        sum=whole,
    )
    return [value], len(buckets) + len(index.get(f"{family}_sum", ())) + len(index.get(f"{family}_count", ()))


def _labels_known(samples: Iterable[Sample]) -> bool:
    return all(label in _KNOWN_LABELS for sample in samples for label, _ in sample.labels)


def _without(labels: Labels, name: str) -> Labels:
    return tuple(label for label in labels if label[0] != name)


def _shown(labels: Labels) -> Labels:
    """Labels as they may be kept: a file's place is not."""
    return tuple((name, value) for name, value in labels if not path_like(value) and len(value) <= 256)


def _number(row: JsonValue, name: str) -> float | None:
    value: Any = row  # Any: a part of a JSON record
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise InputError(
            "a number of an iteration record is not finite", field=name, way_out="check the server's build"
        )
    return float(value)


def _ratio(parts: Sequence[float | None]) -> float | None:
    above, below = parts[0], parts[1]
    return above / below if above is not None and below else None
