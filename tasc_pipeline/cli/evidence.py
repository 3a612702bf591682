"""``tasc evidence``: scores that were made elsewhere, signed there and taken in here."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tasc_collector.contracts.envelope import TraceEnvelope
from tasc_collector.contracts.protocol import EvaluatorIdentity, ExperimentProtocol
from tasc_collector.contracts.scalars import format_timestamp, parse_timestamp
from tasc_collector.contracts.trust_snapshot import EvaluatorKey, EvaluatorTrustSnapshot, Freshness
from tasc_collector.errors import InputError
from tasc_collector.wire.records import read_ndjson_records, read_record_file
from tasc_pipeline.cli.common import home, now, out, say
from tasc_pipeline.cli.show_progress import terminal_progress
from tasc_pipeline.home import keys
from tasc_pipeline.steps.decision_answers import read_answers

KEY_FILE = "keyfile:evaluator.key"
_DAY_MS, _SKEW_MS = 86_400_000, 60_000
EVIDENCE_AGE_MS = 30 * 86_400_000
"""In a new trust snapshot: scores of the last month count."""
FUTURE_SKEW_MS = 60_000
"""In a new trust snapshot: the evaluator's clock may be a minute ahead."""


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(no_args_is_help=True, help="Scores that were made elsewhere: sign them, take them in.")
    group.command("add")(add)
    group.command("sign")(sign)
    group.command("key")(key)
    group.command("import-lm-eval")(import_lm_eval)
    app.add_typer(group, name="evidence")


def add(
    study: Annotated[str, typer.Argument(help="Id of the decision study.")],
    file: Annotated[Path, typer.Argument(help="Signed evidence: NDJSON, or Parquet with one column `evidence`.")],
) -> None:
    """Take signed evidence in: all of the file, or nothing of it."""
    from tasc_pipeline.steps.evidence_intake import add_evidence

    with terminal_progress():
        added = add_evidence(home(), study, file, now())
    console = out()
    console.print(f"{added.new} pieces of evidence taken in, {added.known} were there already", markup=False)
    for window_key, count in added.windows.items():
        console.print(f"  {window_key}: {count}; next: tasc assess {window_key}", markup=False)
    for window_key, count in added.late.items():
        console.print(
            f"  {window_key}: {count} were produced after its watermark and count in a revision only: "
            f"tasc seal --revise {window_key}",
            markup=False,
        )
    for profile_id, count in added.unscored.items():
        console.print(f"  {profile_id}: {count} successful executions have no evidence yet", markup=False)


def sign(
    traces: Annotated[
        Path, typer.Argument(help="Exported envelopes of the window: tasc export traces KEY --out FILE.")
    ],
    scores: Annotated[Path, typer.Argument(help="CSV or JSON lines with trace_id and score (0 to 1).")],
    protocol: Annotated[Path, typer.Option(help="The study's protocol.json.")],
    key_id: Annotated[str, typer.Option(help="Id of the evaluator key, as the protocol pins it.")],
    key: Annotated[str, typer.Option(help="The private key: env:TASC_NAME or keyfile:NAME.")] = KEY_FILE,
    produced_at: Annotated[
        str | None, typer.Option(help="When the scores were produced, UTC with milliseconds; now if not given.")
    ] = None,
    to: Annotated[Path | None, typer.Option("--out", help="File; standard output if not given.")] = None,
) -> None:
    """Sign scores on the evaluator's machine; the output is canonical NDJSON for `tasc evidence add`."""
    from tasc_pipeline.steps.evidence_signing import Evaluator, sign_scores

    if to is not None and to.exists():
        raise InputError("this file exists", where=str(to), way_out="choose another name, or remove it")
    if to is not None and not to.parent.is_dir():
        raise InputError("there is no such folder", where=str(to.parent), way_out="make it, or name a file elsewhere")
    evaluator = Evaluator(
        read_record_file(ExperimentProtocol, protocol),
        keys.signing_key(home(), key),
        key_id,
        format_timestamp(now()) if produced_at is None else _instant(produced_at),
    )
    signed = sign_scores(list(read_ndjson_records(TraceEnvelope, traces)), scores, evaluator)
    if to is None:
        sys.stdout.buffer.writelines(signed.lines)
    else:
        to.write_bytes(b"".join(signed.lines))
    say(f"{len(signed.lines)} pieces of evidence signed")
    for profile_id, count in signed.unscored.items():
        say(f"  {profile_id}: {count} successful executions have no score")


def key(
    answers: Annotated[
        Path | None, typer.Option(help="The answers that `tasc study new --decision` takes; before there is a study.")
    ] = None,
    protocol: Annotated[Path | None, typer.Option(help="Or the protocol.json of a study that exists.")] = None,
    max_age_days: Annotated[int, typer.Option(min=1, max=365, help="How old evidence may be.")] = 30,
) -> None:
    """Make the evaluator's key where there is none, and print a trust snapshot with it for the operator to check."""
    terms = _evaluator(answers, protocol)
    found = home()
    ring = keys.read_ring(found)
    entry = next((item for item in ring.keys if item.role == "evaluator"), None)
    if entry is None:
        entry = keys.new_key(found, "evaluator", now())
        keys.save_ring(found, ring.model_copy(update={"keys": (*ring.keys, entry)}))
        say(f"made {keys.key_file(found, 'evaluator').name}; it stays on this machine")
    trusted = EvaluatorKey(
        key_id=entry.key_id,
        public_key_spki=entry.public_key_spki,
        evaluator_id=terms.evaluator_id,
        producer_id=terms.producer_id,
        authorized_rubric_versions=(terms.rubric_version,),
        authorized_calibration_digests=(terms.calibration_digest,),
        valid_from=entry.valid_from,
        valid_until=entry.valid_until,
    )
    freshness = Freshness(maximum_evidence_age_ms=max_age_days * _DAY_MS, maximum_future_skew_ms=_SKEW_MS)
    snapshot = EvaluatorTrustSnapshot(freshness=freshness, keys=(trusted,), revocations=())
    sys.stdout.write(snapshot.canonical().decode() + "\n")


def import_lm_eval(
    window_key: Annotated[str, typer.Argument(help="Key of the sealed window to show the scores with.")],
    file: Annotated[Path, typer.Argument(help="samples_<task>_<time>.jsonl of lm_eval --log_samples.")],
    profile: Annotated[str, typer.Option(help="Profile whose server the harness asked.")],
    task: Annotated[str | None, typer.Option(help="The harness's task; from the file's name if not given.")] = None,
) -> None:
    """Show scores of lm-evaluation-harness beside a window; they score other generations and never enter a gate."""
    from tasc_pipeline.steps.evidence_tables import publish_evidence
    from tasc_pipeline.steps.lm_eval import import_samples

    found = home()
    count = import_samples(found, window_key, file, profile, task)
    publish_evidence(found, window_key)
    out().print(f"{count} scores in reported_scores; no gate reads them", markup=False)


def _evaluator(answers: Path | None, protocol: Path | None) -> EvaluatorIdentity:
    if answers is not None and protocol is None:
        return read_answers(answers, ()).evaluator
    if protocol is not None and answers is None:
        return read_record_file(ExperimentProtocol, protocol).record.evaluator
    raise InputError(
        "whose scores the key is for stands in one file",
        field="--answers",
        rule="--answers or --protocol, one of them",
        way_out="name the answers of the study to be, or the protocol of one that exists",
    )


def _instant(text: str) -> str:
    try:
        parse_timestamp(text)
    except ValueError:
        raise InputError(
            "not an instant", field="--produced-at", rule="UTC, like 2026-01-31T09:30:00.000Z", way_out="correct it"
        ) from None
    return text
