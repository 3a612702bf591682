"""The summaries that a study's earlier windows left: what a recurring study and ``tasc power`` go on from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from tasc_collector.contracts.report import WindowSummary
from tasc_collector.errors import InputError
from tasc_pipeline.home import keys
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.windows import LINK, REPORT, WindowFolder, window_keys


def earlier_windows(
    home: Home, protocol_digest: str, *, before: str | None = None, complete: bool = True
) -> Mapping[str, tuple[WindowSummary, ...]]:
    """Summaries per candidate of every closed comparison window under exactly these rules.

    Args:
        home: the state folder.
        protocol_digest: digest of the comparison; a fork is another study and starts anew.
        before: only windows that closed before this instant.
        complete: refuse where a closed window was not assessed; a sequence must not lose a window.

    Raises:
        InputError: a window that belongs to the sequence was not assessed, or its report cannot be read.
    """
    ring = keys.read_ring(home)
    found: dict[str, list[WindowSummary]] = defaultdict(list)
    for key in window_keys(home):
        folder = WindowFolder(home, key)
        if not folder.has(LINK) or folder.declaration(ring).record.protocol_digest != protocol_digest:
            continue
        if before is not None and folder.link(ring).record.closed_at >= before:
            continue
        if not folder.has(REPORT):
            if complete:
                raise InputError(
                    "an earlier window of this recurring study was not assessed",
                    where=key,
                    rule="a sequence counts every closed window",
                    way_out=f"run: tasc assess {key}",
                )
            continue
        for result in folder.report().record.comparisons:
            if result.summary is not None:
                found[result.candidate_profile_id].append(result.summary)
    return {candidate: tuple(summaries) for candidate, summaries in found.items()}
