"""Views that are computed from others: pairs, coverage, current windows, a study with its forks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DerivedView:
    """A view over views.

    Attributes:
        name: of the view.
        description: its comment.
        columns: name and comment of every column, in order.
        query: the SELECT.
    """

    name: str
    description: str
    columns: tuple[tuple[str, str], ...]
    query: str


PAIRED_METRICS = ("ttft", "itl_p50", "itl_p95", "tpot", "e2e")
"""Latencies that are compared pair by pair; the columns of ``traces`` end in ``_ms``."""

_PAIR_KEY = (
    ("window_key", "Partition key of the sealed window."),
    ("study_id", "Study."),
    ("case_id", "Case of the pair."),
    ("group_id", "Group of cases that are not independent; resample these, not pairs."),
    ("replicate", "Which repetition of the case."),
    ("case_length_bucket", "Prompt length in powers of two of characters."),
    ("slices", "Slices the case belongs to."),
    ("weight", "Declared traffic weight of the case."),
    ("start_hour", "Hour in which the champion's call started."),
    ("champion_profile_id", "The champion."),
    ("candidate_profile_id", "The candidate."),
    ("champion_trace_id", "The champion's execution."),
    ("candidate_trace_id", "The candidate's execution."),
    ("champion_outcome", "success, failure, aborted, sent_unknown, not_sent or not_attempted."),
    ("candidate_outcome", "success, failure, aborted, sent_unknown, not_sent or not_attempted."),
    ("both_succeeded", "True where ratios and differences exist."),
    ("champion_output_tokens", "Output tokens of the champion. [tokens]"),
    ("candidate_output_tokens", "Output tokens of the candidate. [tokens]"),
)

OUTCOME = (
    "CASE WHEN {t}.state <> 'accepted' THEN {t}.state WHEN {t}.dispatch_state = 'sent_unknown' THEN 'sent_unknown' "
    "ELSE {t}.status END"
)
"""One word for what became of an execution."""


def _metric_columns(metric: str) -> tuple[tuple[str, str], ...]:
    return (
        (f"champion_{metric}_ms", f"{metric} of the champion, null unless both succeeded. [ms]"),
        (f"candidate_{metric}_ms", f"{metric} of the candidate, null unless both succeeded. [ms]"),
        (f"{metric}_ratio", f"Candidate over champion; below 1 the candidate is faster. [ratio of {metric}]"),
        (f"{metric}_delta_ms", f"Candidate minus champion; below 0 the candidate is faster. [ms of {metric}]"),
    )


def _metric_select(metric: str) -> str:
    champion = f"CASE WHEN both_succeeded THEN champion.{metric}_ms END"
    candidate = f"CASE WHEN both_succeeded THEN candidate.{metric}_ms END"
    return (
        f"    {champion} AS champion_{metric}_ms,\n"
        f"    {candidate} AS candidate_{metric}_ms,\n"
        f"    CASE WHEN both_succeeded THEN candidate.{metric}_ms / nullif(champion.{metric}_ms, 0) END "
        f"AS {metric}_ratio,\n"
        f"    CASE WHEN both_succeeded THEN candidate.{metric}_ms - champion.{metric}_ms END AS {metric}_delta_ms"
    )


PAIRED_DELTAS = DerivedView(
    "paired_deltas",
    "Champion and candidate of the same case and replicate side by side; every planned pair has a row.",
    _PAIR_KEY + tuple(column for metric in PAIRED_METRICS for column in _metric_columns(metric)),
    "SELECT\n"
    "    champion.window_key, champion.study_id, champion.case_id, champion.group_id, champion.replicate,\n"
    "    champion.case_length_bucket, champion.slices, champion.weight, champion.start_hour,\n"
    "    champion.profile_id AS champion_profile_id, candidate.profile_id AS candidate_profile_id,\n"
    "    champion.trace_id AS champion_trace_id, candidate.trace_id AS candidate_trace_id,\n"
    f"    {OUTCOME.format(t='champion')} AS champion_outcome,\n"
    f"    {OUTCOME.format(t='candidate')} AS candidate_outcome,\n"
    "    coalesce(champion.status = 'success' AND candidate.status = 'success', false) AS both_succeeded,\n"
    "    champion.output_tokens AS champion_output_tokens, candidate.output_tokens AS candidate_output_tokens,\n"
    + ",\n".join(_metric_select(metric) for metric in PAIRED_METRICS)
    + "\nFROM traces AS champion JOIN traces AS candidate\n"
    "    ON candidate.window_key = champion.window_key AND candidate.case_id = champion.case_id\n"
    "    AND candidate.replicate = champion.replicate\n"
    "WHERE champion.role = 'champion' AND candidate.role = 'candidate'",
)

COVERAGE = DerivedView(
    "coverage",
    "Planned executions per window and profile by what became of them; planned is the sum of the states.",
    (
        ("window_key", "Partition key of the sealed window."),
        ("study_id", "Study."),
        ("role", "champion or candidate."),
        ("profile_id", "Execution profile."),
        ("planned", "Planned executions. [count]"),
        ("success", "Accepted and successful. [count]"),
        ("failure", "Accepted and failed or aborted, with a known end. [count]"),
        ("sent_unknown", "Accepted, but nobody knows what the server did. [count]"),
        ("not_sent", "Proved not sent. [count]"),
        ("not_attempted", "Never attempted. [count]"),
        ("accepted", "Executions with an envelope: success, failure and sent_unknown. [count]"),
        ("coverage", "Executions whose end is known, success and failure, over planned. [share]"),
        ("unknown_rate", "sent_unknown over planned. [share]"),
        ("timing_flagged", "Accepted executions whose first token's time the collector spoilt. [count]"),
    ),
    "SELECT window_key, study_id, role, profile_id,\n"
    "    count(*) AS planned,\n"
    "    count(*) FILTER (status = 'success') AS success,\n"
    "    count(*) FILTER (state = 'accepted' AND status <> 'success' AND dispatch_state <> 'sent_unknown')\n"
    "        AS failure,\n"
    "    count(*) FILTER (state = 'accepted' AND dispatch_state = 'sent_unknown') AS sent_unknown,\n"
    "    count(*) FILTER (state = 'not_sent') AS not_sent,\n"
    "    count(*) FILTER (state = 'not_attempted') AS not_attempted,\n"
    "    count(*) FILTER (state = 'accepted') AS accepted,\n"
    "    count(*) FILTER (state = 'accepted' AND (status = 'success' OR dispatch_state <> 'sent_unknown')) / count(*)\n"
    "        AS coverage,\n"
    "    count(*) FILTER (state = 'accepted' AND dispatch_state = 'sent_unknown') / count(*)\n"
    "        AS unknown_rate,\n"
    "    count(*) FILTER (timing_flagged) AS timing_flagged\n"
    "FROM traces GROUP BY ALL",
)


def windows_current(window_columns: tuple[tuple[str, str], ...]) -> DerivedView:
    """The newest revision of every window, with the columns of ``windows``."""
    return DerivedView(
        "windows_current",
        "The newest revision of every window.",
        window_columns,
        "SELECT * FROM windows QUALIFY row_number() OVER (\n"
        "    PARTITION BY study_id, window_id ORDER BY revision DESC, window_key\n) = 1",
    )


LINEAGE = DerivedView(
    "lineage",
    "A study and all its forks as one story: the newest revision of every window, with its results. A window that was "
    "not assessed has one row without a result. Studies of one lineage differ in their rules, so results are set side "
    "by side here and never added up.",
    (
        ("lineage_id", "The study that the first fork was made from; a study that was not forked is its own lineage."),
        ("study_id", "Study of the window."),
        ("predecessor_study_id", "Study that this one was forked from, null where it was not."),
        ("window_key", "Partition key of the sealed window."),
        ("window_id", "Readable id of the window; the same for all its revisions."),
        ("revision", "Revision of the window, the newest."),
        ("window_class", "observation or decisive."),
        ("purpose", "What was collected: comparison, development, holdout, window or monitoring."),
        ("event_time_start", "First instant of the window; order by it."),
        ("candidate_profile_id", "Candidate of a comparison; null for a decision."),
        ("result", "no-worse, worse, undecided; PASS, HOLD, INSUFFICIENT_EVIDENCE or STALE; null if not assessed."),
        ("sentence", "The result in one sentence."),
        ("coverage", "As assessed. [share]"),
        ("as_of", "Instant the assessment speaks for."),
    ),
    "SELECT\n"
    "    windows.lineage_id, windows.study_id, windows.predecessor_study_id, windows.window_key, windows.window_id,\n"
    "    windows.revision, windows.window_class, windows.purpose, windows.event_time_start,\n"
    "    decisions.candidate_profile_id, decisions.result, decisions.sentence, decisions.coverage, decisions.as_of\n"
    "FROM windows_current AS windows LEFT JOIN decisions ON decisions.window_key = windows.window_key",
)
