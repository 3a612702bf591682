"""A study's trace of arrivals: the file that an open load with ``arrival = "trace"`` follows, held to the pinned digest.

The plan pins the digest, so the file is read when the plan is made and again when the window is collected.
"""

from __future__ import annotations

from typing import Final

from tasc_collector.contracts.collection import LoadModel, OpenLoad
from tasc_collector.errors import DigestMismatch, InputError
from tasc_collector.shadow.arrivals import arrivals_digest, read_arrivals
from tasc_pipeline.home.studies import LoadedStudy

ARRIVALS: Final = "arrivals.txt"
"""Trace of arrivals of a study, beside its ``study.toml``."""


def study_arrivals(study: LoadedStudy, load: LoadModel, *, pairs: int = 0) -> tuple[float, ...] | None:
    """Offsets in seconds from the first arrival; None where the load model follows no trace.

    Args:
        study: the study.
        load: its load model, or that of a plan of it.
        pairs: pairs that must arrive.

    Raises:
        InputError: the file is missing, a line is no time of arrival, or there are fewer lines than pairs.
        DigestMismatch: it is not the pinned trace; says the digest of the one that is there.
    """
    if not isinstance(load, OpenLoad) or load.arrival != "trace":
        return None
    where = f"{study.study.study_id}/{ARRIVALS}"
    path = study.folder / ARRIVALS
    if not path.is_file():
        raise InputError(
            "the load model follows a trace of arrivals, which is not there",
            where=where,
            rule="seconds, one number per line, not decreasing",
            way_out="put the file beside study.toml",
        )
    with path.open("rb") as lines:
        arrivals = read_arrivals(lines, where=where)
    found = arrivals_digest(arrivals)
    if found != load.trace_digest:
        raise DigestMismatch(
            "the trace of arrivals is not the pinned one",
            where=where,
            field="load_model.trace_digest",
            rule=f"the trace at hand has digest {found}",
            way_out="restore the file; or name this digest in study.toml, then seal and plan a new window",
        )
    if len(arrivals) < pairs:
        raise InputError(
            f"the trace has {len(arrivals)} arrivals for {pairs} pairs",
            where=where,
            way_out="plan fewer cases or replicates, or use a longer trace",
        )
    return arrivals
