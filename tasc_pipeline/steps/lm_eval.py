"""Sample logs of lm-evaluation-harness beside a window: shown in ``reported_scores`` and on its page, never in a gate.

The harness scores generations of its own, not the answers that the window collected, so nothing here joins a trace. Of a
log (``samples_<task>_<time>.jsonl``, one JSON object per line, as ``--log_samples`` of lm-evaluation-harness 0.4 writes
it) only the document's number, the filter, and the named metrics are read; documents, prompts and answers stay where they
are. What was read is kept content-addressed under the window:

::

    windows/<window key>/reported-scores/<sha256>.json
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import orjson

from tasc_collector.canonical import canonical_bytes, sha256_hex
from tasc_collector.errors import InputError, WireError
from tasc_collector.limits import RECORD_FILE_MAX_BYTES, RECORD_MAX_BYTES
from tasc_collector.wire.json import RECORD_JSON, parse_json
from tasc_collector.wire.records import read_bounded
from tasc_pipeline.home.files import make_folder, write_file
from tasc_pipeline.home.layout import Home
from tasc_pipeline.steps.approved import load_approved
from tasc_pipeline.warehouse.tables_assessment import ReportedScoreRow

FOLDER: Final = "reported-scores"
SOURCE: Final = "lm-evaluation-harness"
_FILE_NAME: Final = re.compile(r"samples_(?P<task>.+?)(?:_\d{4}-\d{2}-\d{2}T[\d.:-]+)?\.jsonl")
_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_WAY_OUT: Final = "give the samples_<task>_<time>.jsonl that lm_eval --log_samples wrote"


def import_samples(home: Home, window_key: str, path: Path, profile_id: str, task: str | None = None) -> int:
    """Read one log and keep its scores beside a window; the same log again changes nothing.

    Args:
        home: the state folder.
        window_key: the window to show them with.
        path: the log.
        profile_id: profile whose server the harness asked.
        task: the harness's task; from the file's name if None.

    Returns:
        Number of scores.

    Raises:
        InputError: an unknown profile, or the first line that is no sample; nothing was written.
    """
    approved = load_approved(home, window_key)
    profiles = sorted(target.profile_id for target in approved.plan.record.targets)
    if profile_id not in profiles:
        raise InputError(
            f"the window has no such profile (it has: {', '.join(profiles)})",
            where=window_key,
            field="--profile",
            way_out="name the profile whose server the harness asked",
        )
    name = task or _task_of(path)
    scores = [score for number, line in _lines(path) for score in _scores(line, f"{path.name} line {number}")]
    _check_once(scores, path)
    content = canonical_bytes({"profileId": profile_id, "scores": scores, "source": SOURCE, "task": name})
    folder = home.window(window_key) / FOLDER
    make_folder(folder)
    write_file(folder / f"{sha256_hex(content)}.json", content)
    return len(scores)


def imported_scores(home: Home, window_key: str) -> Iterator[ReportedScoreRow]:
    """What was imported beside a window, in order of the files' digests.

    Raises:
        InputError: a file is not what its name says.
    """
    folder = home.window(window_key) / FOLDER
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        content = read_bounded(path, RECORD_FILE_MAX_BYTES)
        if sha256_hex(content) != path.stem:
            raise InputError(
                "the imported scores were changed", where=str(path), way_out="remove the file and import the log again"
            )
        value: dict[str, Any] = orjson.loads(content)  # Any: our own JSON, its digest checked
        for score in value["scores"]:
            yield ReportedScoreRow(
                window_key=window_key,
                source=value["source"],
                profile_id=value["profileId"],
                case_id=f"{value['task']}-{score['document']}",
                score_id=f"{score['metric']},{score['filter']}",
                score=score["score"],
            )


def _task_of(path: Path) -> str:
    named = _FILE_NAME.fullmatch(path.name)
    if named is None or not _WORD.fullmatch(named["task"]):
        raise InputError("the file's name does not say the task", where=path.name, field="--task", way_out=_WAY_OUT)
    return named["task"]


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:  # Any: a JSON object
    lines = read_bounded(path, RECORD_FILE_MAX_BYTES).split(b"\n")
    if lines and not lines[-1]:
        lines.pop()
    if not lines:
        raise InputError("the log is empty", where=path.name, way_out=_WAY_OUT)
    for number, line in enumerate(lines, start=1):
        place = f"{path.name} line {number}"
        try:
            value = parse_json(line, RECORD_JSON) if len(line) <= RECORD_MAX_BYTES else None
        except WireError as error:
            raise InputError("not a JSON line", where=place, rule=error.code, way_out=_WAY_OUT) from None
        if not isinstance(value, dict):
            raise InputError("not a JSON object", where=place, way_out=_WAY_OUT)
        yield number, value


def _scores(sample: dict[str, Any], place: str) -> Iterator[dict[str, Any]]:  # Any: JSON objects
    """The metrics of one sample: those that the line names, each a number or a truth value."""
    document, names = sample.get("doc_id"), sample.get("metrics")
    filtered = sample.get("filter", "none")
    if not isinstance(document, int) or isinstance(document, bool) or document < 0:
        raise InputError("a sample has a document number", where=place, field="doc_id", way_out=_WAY_OUT)
    if not isinstance(names, list) or not names:
        raise InputError("a sample names its metrics", where=place, field="metrics", way_out=_WAY_OUT)
    for name in (*names, filtered):
        if not isinstance(name, str) or not _WORD.fullmatch(name):
            raise InputError("a metric or filter is a word", where=place, field="metrics", way_out=_WAY_OUT)
    for name in names:
        score = sample.get(name)
        if not isinstance(score, (int, float)):
            raise InputError(
                "the sample has no such number",
                where=place,
                field=name,
                rule="only metrics of one sample are read, not what is added up over a corpus",
                way_out="take the metric out of the task, or give another log",
            )
        yield {"document": document, "filter": filtered, "metric": name, "score": float(score)}


def _check_once(scores: list[dict[str, Any]], path: Path) -> None:  # Any: JSON objects
    seen = set()
    for score in scores:
        key = (score["document"], score["metric"], score["filter"])
        if key in seen:
            raise InputError(
                "a document has two scores of one metric and filter",
                where=path.name,
                field=f"doc_id {score['document']}",
                way_out="give each log alone",
            )
        seen.add(key)
