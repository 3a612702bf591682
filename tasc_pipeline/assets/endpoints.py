"""The servers that studies name, as seen through their newest receipts. Observing reads files; it sends nothing."""

from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg

from tasc_collector.contracts.scalars import format_timestamp
from tasc_pipeline.assets.collection import OWNERS
from tasc_pipeline.assets.described import RECEIPTS_SHOWN
from tasc_pipeline.clock import utc_now
from tasc_pipeline.failures import in_words
from tasc_pipeline.resources import StateFolder
from tasc_pipeline.steps.endpoints import EndpointsView, Problem, ReceiptLine, endpoints_view

RUNTIME_ENDPOINTS = "runtime_endpoints"


@dg.multi_observable_source_asset(  # type: ignore[untyped-decorator]  # Dagster gives this one no types
    name="observe_runtime_endpoints",
    specs=[
        dg.AssetSpec(
            RUNTIME_ENDPOINTS,
            group_name="authority",
            kinds={"json"},
            owners=OWNERS,
            code_version="1",
            metadata={"dagster/column_schema": RECEIPTS_SHOWN},
            description="Every endpoint of every study with its newest receipt per capability. The data version changes "
            "with a newer receipt and with nothing else.",
        )
    ],
)
def runtime_endpoints(state: StateFolder) -> Iterator[dg.ObserveResult]:
    """Read the stored receipts."""
    with in_words():
        view = endpoints_view(state.home(), format_timestamp(utc_now()))
    yield dg.ObserveResult(
        asset_key=RUNTIME_ENDPOINTS,
        metadata=endpoints_metadata(view),
        data_version=dg.DataVersion(view.data_version),
    )


def observation_of(view: EndpointsView) -> dg.AssetObservation:
    """The same observation as an event, for a run that has just probed."""
    return dg.AssetObservation(
        RUNTIME_ENDPOINTS, metadata=endpoints_metadata(view), tags={"dagster/data_version": view.data_version}
    )


def endpoints_metadata(view: EndpointsView) -> Mapping[str, Any]:  # Any: whatever Dagster takes as a metadata value
    """Endpoint, capability, state and age as a table; counts and the oldest age as numbers that become plots."""
    counts = {
        state: sum(line.state == state for line in view.lines) for state in ("supported", "unsupported", "unknown")
    }
    found: dict[str, Any] = {  # Any: as above
        "endpoints": len(view.endpoints),
        "receipts": len(view.lines),
        **{f"receipts_{state}": count for state, count in counts.items()},
        **{f"problems_{item.value.replace('-', '_')}": _count(view, item) for item in Problem},
        "untrusted_files": len(view.untrusted),
        "unreadable_studies": len(view.unreadable),
    }
    if view.lines:
        found["oldest_receipt_h"] = round(max(line.age_s for line in view.lines) / 3600, 3)
        found["table"] = dg.MetadataValue.table([_record(line) for line in view.lines], schema=RECEIPTS_SHOWN)
    return found


def problem_text(line: ReceiptLine) -> str:
    """A problem in words, with the way out; empty where there is none."""
    if line.problem is None:
        return ""
    return f"{line.problem}{f' ({line.detail})' if line.detail else ''}"


def _count(view: EndpointsView, problem: Problem) -> int:
    return sum(line.problem is problem for line in view.lines)


def _record(line: ReceiptLine) -> dg.TableRecord:
    values = (
        f"{line.study_id}/{line.alias}",
        line.runtime,
        line.capability,
        line.state,
        line.reason,
        round(line.age_s / 3600, 2),
        line.valid_until,
        problem_text(line),
    )
    names = [column.name for column in RECEIPTS_SHOWN.columns]
    return dg.TableRecord(dict(zip(names, values, strict=True)))
