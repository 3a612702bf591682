"""Prometheus text as exporters really write it, incrementally and within bounds.

Rules:

1. Classic text 0.0.4. Where a server sends OpenMetrics, its extra comments, types, ``_created`` samples and exemplars
   are read past; a final ``# EOF`` makes sample times seconds instead of milliseconds, and nothing may follow it.
2. A sample whose value is NaN or infinite, and a native histogram, is kept out of the families and counted.
3. Label sets are kept and sorted by name. Two samples with the same name, labels and time are refused, never merged;
   only where OpenMetrics itself allows it (a repeated explicit time) the first is kept and the others are counted.
4. A line ends with LF. Only ``# EOF`` may lack it: a number cut short would be another number.
5. A metric has at most one TYPE, before its samples, and at most one HELP that says something.
6. ``le`` of a histogram's buckets and ``quantile`` of a summary are numbers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from tasc_collector import limits as bounds
from tasc_collector.wire.intake import check_bounds
from tasc_collector.wire.prometheus_line import (
    Declaration,
    SampleLine,
    is_broken_declaration,
    nanoseconds,
    read_declaration,
    read_sample,
)
from tasc_collector.wire.refusals import WireCode, refusal

_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?(?i:inf)|(?i:nan)")
_HARD = {
    "max_bytes": bounds.PROMETHEUS_BYTES_HARD,
    "max_lines": bounds.PROMETHEUS_LINES_HARD,
    "max_line_bytes": bounds.PROMETHEUS_LINE_BYTES_HARD,
    "max_samples": bounds.PROMETHEUS_SAMPLES_HARD,
    "max_labels": bounds.PROMETHEUS_LABELS_HARD,
    "max_name": bounds.PROMETHEUS_NAME_HARD,
    "max_label_name": bounds.PROMETHEUS_LABEL_NAME_HARD,
    "max_label_value": bounds.PROMETHEUS_LABEL_VALUE_HARD,
}


@dataclass(frozen=True, slots=True)
class PrometheusLimits:
    """Bounds of one scrape.

    Args:
        max_bytes: bytes of the text.
        max_lines: lines.
        max_line_bytes: bytes of a line.
        max_samples: samples, kept or not.
        max_labels: labels of a sample.
        max_name: characters of a metric name.
        max_label_name: characters of a label name.
        max_label_value: characters of a label value, after unescaping.

    Raises:
        InputError: a bound is not positive, or above its hard maximum.
    """

    max_bytes: int = bounds.PROMETHEUS_MAX_BYTES
    max_lines: int = bounds.PROMETHEUS_MAX_LINES
    max_line_bytes: int = bounds.PROMETHEUS_MAX_LINE_BYTES
    max_samples: int = bounds.PROMETHEUS_MAX_SAMPLES
    max_labels: int = bounds.PROMETHEUS_MAX_LABELS
    max_name: int = bounds.PROMETHEUS_MAX_NAME
    max_label_name: int = bounds.PROMETHEUS_MAX_LABEL_NAME
    max_label_value: int = bounds.PROMETHEUS_MAX_LABEL_VALUE

    def __post_init__(self) -> None:
        check_bounds(self, _HARD, where="Prometheus limits")


class MetricType(StrEnum):
    """Type of a metric family; OpenMetrics' ``unknown`` is read as ``untyped``."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    SUMMARY = "summary"
    UNTYPED = "untyped"
    INFO = "info"
    STATESET = "stateset"
    GAUGEHISTOGRAM = "gaugehistogram"


_TYPES = {**{kind.value: kind for kind in MetricType}, "unknown": MetricType.UNTYPED}
_SUFFIXES: dict[MetricType, tuple[str, ...]] = {
    MetricType.COUNTER: ("_total", "_created"),
    MetricType.HISTOGRAM: ("_bucket", "_sum", "_count", "_created"),
    MetricType.SUMMARY: ("_sum", "_count", "_created"),
    MetricType.GAUGEHISTOGRAM: ("_bucket", "_gsum", "_gcount"),
    MetricType.INFO: ("_info",),
}
_NUMERIC_LABEL = {
    (MetricType.HISTOGRAM, "_bucket"): "le",
    (MetricType.GAUGEHISTOGRAM, "_bucket"): "le",
    (MetricType.SUMMARY, ""): "quantile",
}


class Sample(NamedTuple):
    """One finite sample. Labels are sorted by name; ``timestamp_ms`` is None where the server gave none."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float
    timestamp_ms: int | None


@dataclass(frozen=True, slots=True)
class Family:
    """The samples of one metric, in the order in which they were sent."""

    name: str
    type: MetricType
    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True)
class Exposition:
    """One scrape.

    Args:
        families: by name; a family that was declared but has no finite sample is there, empty.
        non_finite: samples with NaN or an infinite value, kept out.
        native_histograms: native histograms, kept out.
        repeated: OpenMetrics samples after the first of the same name, labels and explicit time, kept out.
        open_metrics: the text ended with ``# EOF``.
    """

    families: Mapping[str, Family]
    non_finite: int
    native_histograms: int
    repeated: int
    open_metrics: bool

    def named(self, sample_name: str) -> tuple[Sample, ...]:
        """All samples of this exact name (such as ``x_bucket``), whichever family they are in."""
        return tuple(
            sample for family in self.families.values() for sample in family.samples if sample.name == sample_name
        )


class PrometheusDecoder:
    """Decodes one scrape that comes in chunks."""

    def __init__(self, limits: PrometheusLimits = PrometheusLimits()) -> None:
        self._limits = limits
        self._pending = bytearray()
        self._size = self._offset = self._lines = self._samples = 0
        self._ended = False
        self._types: dict[str, MetricType] = {}
        self._helped: set[str] = set()
        self._read: dict[str, list[tuple[SampleLine, int]]] = {}

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes.

        Raises:
            LimitExceeded: a bound is broken.
            WireError: a line is not Prometheus text or not UTF-8. The error's offset is that of the line.
        """
        self._size += len(chunk)
        if self._size > self._limits.max_bytes:
            raise refusal(WireCode.BYTE_LIMIT)
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            whole = bytes(self._pending) + line
            self._pending.clear()
            self._read_line(whole)
        self._pending += rest
        if len(self._pending) > self._limits.max_line_bytes:
            raise refusal(WireCode.LINE_BYTE_LIMIT, offset=self._offset)

    def finish(self) -> Exposition:
        """The scrape, once all bytes are there.

        Raises:
            WireError: the last line is not ended, or two samples have the same name, labels and time.
        """
        if self._pending:
            if self._pending != b"# EOF":
                raise refusal(WireCode.UNSUPPORTED_SYNTAX, offset=self._offset)
            self._read_line(bytes(self._pending))
            self._pending.clear()
        kept: dict[str, list[Sample]] = {name: [] for name in self._types}
        seen: set[tuple[str, tuple[tuple[str, str], ...], int | None]] = set()
        non_finite = native = repeated = 0
        for family, lines in self._read.items():
            samples = kept.setdefault(family, [])
            for line, offset in lines:
                time_ns = nanoseconds(line.time, seconds=self._ended) if line.time else None
                if line.time and time_ns is None:
                    raise refusal(WireCode.UNSUPPORTED_SYNTAX, offset=offset)
                key = (line.name, line.labels, time_ns)
                if line.value is None:
                    native += 1
                elif key in seen:
                    if time_ns is None or not self._ended:
                        raise refusal(WireCode.DUPLICATE_SAMPLE, offset=offset)
                    repeated += 1
                elif not math.isfinite(line.value):
                    non_finite += 1
                else:
                    time_ms = None if time_ns is None else time_ns // 1_000_000
                    samples.append(Sample(line.name, line.labels, line.value, time_ms))
                seen.add(key)
        families = {
            name: Family(name, self._types.get(name, MetricType.UNTYPED), tuple(samples))
            for name, samples in kept.items()
        }
        return Exposition(MappingProxyType(families), non_finite, native, repeated, self._ended)

    def _read_line(self, raw: bytes) -> None:
        code = self._why_refused(raw)
        if code is not None:
            raise refusal(code, offset=self._offset)
        self._lines += 1
        self._offset += len(raw) + 1

    def _why_refused(self, raw: bytes) -> WireCode | None:
        """Take one line; the reason if it cannot be taken."""
        if len(raw) > self._limits.max_line_bytes:
            return WireCode.LINE_BYTE_LIMIT
        if self._lines >= self._limits.max_lines:
            return WireCode.LINE_LIMIT
        if self._offset == 0 and raw.startswith(b"\xef\xbb\xbf"):
            return WireCode.UTF8_BOM
        try:
            line = raw.decode()
        except UnicodeDecodeError:
            return WireCode.INVALID_UTF8
        if self._ended:
            return WireCode.UNSUPPORTED_SYNTAX
        text = line.lstrip(" \t")
        if not text:
            return None
        if not text.startswith("#"):
            return self._take_sample(line)
        if line == "# EOF":
            self._ended = True
            return None
        declaration = read_declaration(line)
        if declaration is not None:
            return self._take_declaration(declaration)
        return WireCode.UNSUPPORTED_SYNTAX if is_broken_declaration(line) else None

    def _take_declaration(self, said: Declaration) -> WireCode | None:
        if len(said.name) > self._limits.max_name:
            return WireCode.NAME_LIMIT
        if said.what == "HELP" and said.text.strip(" \t"):
            if said.name in self._helped:
                return WireCode.UNSUPPORTED_SYNTAX
            self._helped.add(said.name)
        if said.what == "TYPE":
            kind = _TYPES.get(said.text.strip(" \t"))
            if kind is None or said.name in self._types or said.name in self._read:
                return WireCode.UNSUPPORTED_SYNTAX
            self._types[said.name] = kind
        return None

    def _take_sample(self, line: str) -> WireCode | None:
        if self._samples >= self._limits.max_samples:
            return WireCode.SAMPLE_LIMIT
        sample = read_sample(line)
        if sample is None:
            return WireCode.UNSUPPORTED_SYNTAX
        limits = self._limits
        if len(sample.name) > limits.max_name:
            return WireCode.NAME_LIMIT
        if len(sample.labels) > limits.max_labels:
            return WireCode.LABEL_LIMIT
        if len(line) > min(limits.max_label_name, limits.max_label_value) and any(
            len(name) > limits.max_label_name or len(value) > limits.max_label_value for name, value in sample.labels
        ):
            return WireCode.LABEL_LIMIT
        family, suffix = self._family_of(sample.name)
        numeric = _NUMERIC_LABEL.get((self._types.get(family, MetricType.UNTYPED), suffix))
        if numeric is not None and not _NUMBER.fullmatch(dict(sample.labels).get(numeric, "0")):
            return WireCode.UNSUPPORTED_SYNTAX
        self._samples += 1
        self._read.setdefault(family, []).append((sample, self._offset))
        return None

    def _family_of(self, name: str) -> tuple[str, str]:
        """Family of a sample and the suffix that tells them apart."""
        if name not in self._types:
            base, underscore, word = name.rpartition("_")
            suffix = underscore + word
            if suffix in _SUFFIXES.get(self._types.get(base, MetricType.UNTYPED), ()):
                return base, suffix
        return name, ""


def parse_prometheus(data: bytes, limits: PrometheusLimits = PrometheusLimits()) -> Exposition:
    """Read one whole scrape.

    Raises:
        LimitExceeded: a bound is broken.
        WireError: the bytes are not Prometheus text; ``code`` says why and ``offset`` which line.
    """
    decoder = PrometheusDecoder(limits)
    decoder.feed(data)
    return decoder.finish()
