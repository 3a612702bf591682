"""Verified scrapes as Arrow columns, and the rows of ``metric_samples`` and ``metric_histograms`` that they give. Pure.

A day of two servers is 80,000 scrapes with several values each. An object for every value would cost seconds, so nothing here
makes one: the lines are parsed, held to their schema and turned into rows by columns.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from tasc_collector.errors import InputError
from tasc_pipeline.warehouse.latency import NS_PER_MS
from tasc_pipeline.warehouse.schemas import METRIC_HISTOGRAMS, METRIC_SAMPLES

_LABELS: Final = pa.list_(pa.list_(pa.string()))
_VALUE: Final = pa.struct([("metric", pa.string()), ("labels", _LABELS), ("value", pa.float64())])
_HISTOGRAM: Final = pa.struct(
    [
        ("metric", pa.string()),
        ("labels", _LABELS),
        ("upperBounds", pa.list_(pa.float64())),
        ("cumulativeCounts", pa.list_(pa.int64())),
        ("sum", pa.float64()),
    ]
)
_ENTRY: Final = pa.schema(
    [
        ("version", pa.string()),
        ("windowKey", pa.string()),
        ("endpointAlias", pa.string()),
        ("endpointBindingDigest", pa.string()),
        ("phase", pa.string()),
        ("scrapedAt", pa.string()),
        ("tookNs", pa.int64()),
        ("values", pa.list_(_VALUE)),
        ("histograms", pa.list_(_HISTOGRAM)),
        ("ignoredSamples", pa.int64()),
        ("nonFiniteSamples", pa.int64()),
    ]
)
"""A scrape's record without its signature."""
_VERSION: Final = "tasc-metrics-scrape-v1"
_MAY_BE_NULL: Final = frozenset({"windowKey", "value", "sum"})
_LEAST_BLOCK: Final = 1 << 20
SLICE_BYTES: Final = 64 << 20
"""Bytes of lines that are parsed at once: Arrow takes a block of less than 2 GiB, and the scrapes of a window may be more."""

Integers: TypeAlias = npt.NDArray[np.int64]
Numbers: TypeAlias = npt.NDArray[np.float64]


def scrape_columns(lines: Sequence[bytes], *, slice_bytes: int = SLICE_BYTES) -> pa.Table:
    """Scrapes as a table with a column per field, in the order of their lines.

    Args:
        lines: bytes that a verified batch signed, each one ``tasc-metrics-scrape-v1`` without a signature.
        slice_bytes: how many bytes of whole lines are parsed at once; a longer line is parsed alone.

    Raises:
        InputError: a line has an unknown or missing field, or a value of another type.
    """
    table = pa.concat_tables([_ENTRY.empty_table(), *map(_parsed, _slices(lines, slice_bytes))]).combine_chunks()
    for name in _ENTRY.names:
        _check(name, _whole(table, name))
    if not _all(pc.equal(_whole(table, "version"), _VERSION)):
        raise _refused("a line is of another version")
    flat = _whole(table, "histograms").flatten()
    bounds, counts = (pc.list_value_length(flat.field(name)) for name in ("upperBounds", "cumulativeCounts"))
    if not _all(pc.equal(counts, pc.add(bounds, 1))):
        raise _refused("a histogram has another number of counts than of buckets")
    return table


def _slices(lines: Iterable[bytes], slice_bytes: int) -> Iterator[list[bytes]]:
    """Lines in their order, as many at a time as have no more bytes than that with their line ends; at least one."""
    held: list[bytes] = []
    size = 0
    for line in lines:
        if held and size + len(line) + 1 > slice_bytes:
            yield held
            held, size = [], 0
        held.append(line)
        size += len(line) + 1
    if held:
        yield held


def _parsed(lines: list[bytes]) -> pa.Table:
    data = b"".join(line + b"\n" for line in lines)
    try:
        table = pj.read_json(
            io.BytesIO(data),
            # one block: a line may not lie across two
            read_options=pj.ReadOptions(use_threads=False, block_size=max(len(data), _LEAST_BLOCK)),
            parse_options=pj.ParseOptions(explicit_schema=_ENTRY, unexpected_field_behavior="error"),
        )
    except pa.ArrowInvalid:
        raise _refused("a line is no scrape, or has an unknown field") from None
    if table.num_rows != len(lines):
        raise _refused("a line holds more than one scrape")
    return table


def _refused(what: str) -> InputError:
    return InputError(what, where="scrapes of the window", way_out="restore the file")


def _whole(table: pa.Table, name: str) -> pa.Array:
    """A column of a table in one piece."""
    chunks = table.column(name).chunks
    return chunks[0] if chunks else pa.array([], table.schema.field(name).type)


def _all(flags: pa.BooleanArray) -> bool:
    """Whether no flag is false; null says nothing."""
    return bool(pc.all(flags, min_count=0).as_py())


def _check(name: str, values: pa.Array) -> None:
    """No null where a value is required, no number that is not finite, no label that is not a pair."""
    if values.null_count and name not in _MAY_BE_NULL:
        raise _refused(f"{name} is missing")
    if pa.types.is_floating(values.type) and not _all(pc.is_finite(values)):
        raise _refused(f"{name} is not finite")
    if pa.types.is_list(values.type):
        items = values.flatten()
        if name == "labels" and not _all(pc.equal(pc.list_value_length(items), 2)):
            raise _refused("a label is not a pair of name and value")
        _check("label" if name == "labels" else name, items)
    elif pa.types.is_struct(values.type):
        for place, field in enumerate(values.type):
            _check(field.name, values.field(place))


def metric_samples_table(window_key: str, scrapes: pa.Table) -> pa.Table:
    """``metric_samples``: one row per canonical metric, label set and scrape."""
    values = _whole(scrapes, "values")
    samples, scrape = values.flatten(), pc.list_parent_indices(values)
    return METRIC_SAMPLES.from_columns(
        {
            "window_key": pa.repeat(pa.scalar(window_key), len(samples)),
            "endpoint_alias": _whole(scrapes, "endpointAlias").take(scrape),
            "phase": _whole(scrapes, "phase").take(scrape),
            "sampled_at": _instants(scrapes).take(scrape),
            "took_ms": pc.divide(pc.cast(_whole(scrapes, "tookNs"), pa.float64()), float(NS_PER_MS)).take(scrape),
            "metric": samples.field("metric"),
            "labels": _label_texts(samples.field("labels")),
            "value": samples.field("value"),
        }
    )


def metric_histograms_table(window_key: str, scrapes: pa.Table) -> pa.Table:
    """``metric_histograms``: one row per endpoint, metric, pair of scrapes and bucket that gained something.

    A scrape that has no histogram (it failed, or the server was gone) is passed over: what was added meanwhile stands
    between the scrapes around it. What a pair gained is what ``tasc_collector.probes.counters.histogram_change`` says.
    """
    held = _whole(scrapes, "histograms")
    flat, scrape = held.flatten(), pc.list_parent_indices(held)
    texts = {
        "endpoint_alias": _whole(scrapes, "endpointAlias").take(scrape),
        "metric": flat.field("metric"),
        "labels": _label_texts(flat.field("labels")),
    }
    at = _instants(scrapes).take(scrape).cast(pa.int64()).to_numpy()
    gained = _gained(_lists(flat.field("upperBounds")), _lists(flat.field("cumulativeCounts")), _series(texts, at))
    return METRIC_HISTOGRAMS.from_columns(
        {
            "window_key": pa.repeat(pa.scalar(window_key), len(gained.after)),
            **{name: column.take(pa.array(gained.after)) for name, column in texts.items()},
            "from_at": pa.array(at[gained.before]),
            "until_at": pa.array(at[gained.after]),
            "bucket": pa.array(gained.bucket),
            "lower_bound_s": pa.array(gained.low),
            "upper_bound_s": pa.array(gained.high, mask=np.isinf(gained.high)),
            "observations": pa.array(gained.count),
        }
    )


def _instants(scrapes: pa.Table) -> pa.Array:
    try:
        return _whole(scrapes, "scrapedAt").cast(pa.timestamp("ms", tz="UTC"))
    except pa.ArrowInvalid:
        raise _refused("scrapedAt is no instant") from None


def _label_texts(labels: pa.Array) -> pa.Array:
    """``name=value`` pairs with commas between them, for each label set."""
    pairs = labels.flatten()
    pair = pairs.flatten()
    even = pa.array(np.arange(0, len(pair), 2))
    joined = pc.binary_join_element_wise(pair.take(even), pair.take(pc.add(even, 1)), "=")
    lengths = pc.list_value_length(labels).to_numpy(zero_copy_only=False)
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), joined), ",")


def _series(texts: Mapping[str, pa.Array], at: Integers) -> Iterator[Integers]:
    """Places of the histograms of each endpoint, metric and label set, in the order of their instants."""
    codes = np.zeros(len(at), np.int64)
    for text in texts.values():
        encoded = text.dictionary_encode()
        codes = codes * max(len(encoded.dictionary), 1) + encoded.indices.to_numpy(zero_copy_only=False)
    order = np.lexsort((at, codes))
    yield from np.split(order, np.flatnonzero(np.diff(codes[order])) + 1)


@dataclass(frozen=True, slots=True)
class _Lists:
    """A column of lists: where each begins, how long it is, and all items one after another."""

    starts: Integers
    sizes: Integers
    items: npt.NDArray[Any]  # Any: bounds or counts

    def matrix(self, places: Integers, size: int) -> npt.NDArray[Any]:  # Any: as above
        """Lists of equal size as the rows of a matrix."""
        found: npt.NDArray[Any] = self.items[self.starts[places][:, None] + np.arange(size)]
        return found


def _lists(column: pa.ListArray) -> _Lists:
    sizes = pc.list_value_length(column).cast(pa.int64()).to_numpy(zero_copy_only=False)
    return _Lists(np.cumsum(sizes) - sizes, sizes, column.flatten().to_numpy(zero_copy_only=False))


@dataclass(frozen=True, slots=True)
class _Gained:
    """Buckets that gained something: the two histograms' places, the bucket's, its count and its bounds in seconds."""

    before: Integers
    after: Integers
    bucket: Integers
    count: Integers
    low: Numbers
    high: Numbers


def _gained(bounds: _Lists, counts: _Lists, series: Iterable[Integers]) -> _Gained:
    whole, part = np.zeros((4, 0), np.int64), np.zeros((2, 0))
    places, edges = [whole], [part]
    for rows in series:
        # bounds that changed in number, then (below) in value: nothing can be said of that pair
        for run in np.split(rows, np.flatnonzero(np.diff(bounds.sizes[rows])) + 1):
            if len(run) < 2:
                continue
            size = int(bounds.sizes[run[0]])
            bound = bounds.matrix(run, size)
            cumulative = counts.matrix(run, size + 1)
            own = np.diff(cumulative, axis=1, prepend=0)
            reset = (cumulative[1:, -1] < cumulative[:-1, -1]) | (own[1:] < own[:-1]).any(axis=1)
            grown = own[1:] - np.where(reset[:, None], 0, own[:-1])
            grown[(bound[1:] != bound[:-1]).any(axis=1)] = 0
            pair, bucket = np.nonzero(grown)
            edge = np.pad(bound[1:], ((0, 0), (1, 1)), constant_values=((0, 0), (0.0, np.inf)))
            places.append(np.stack((run[pair], run[pair + 1], bucket, grown[pair, bucket])))
            edges.append(np.stack((edge[pair, bucket], edge[pair, bucket + 1])))
    return _Gained(*np.concatenate(places, axis=1), *np.concatenate(edges, axis=1))
