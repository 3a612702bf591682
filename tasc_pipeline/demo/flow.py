"""One window of the demo's study: seal, plan, approve, collect through Dagster, assess. Run again, it finishes before it adds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from tasc_collector.contracts.comparison import Comparison
from tasc_collector.contracts.report import AssessmentReport
from tasc_collector.errors import InputError, TascError
from tasc_collector.runtimes.profile import Capability, Effect
from tasc_collector.transport.origins import parse_origin
from tasc_pipeline.control.power import study_notes
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.studies import load_study
from tasc_pipeline.home.windows import APPROVAL, LINK, PLAN, WindowFolder, window_keys
from tasc_pipeline.instance import add_partition, run_job
from tasc_pipeline.steps import plan, seal
from tasc_pipeline.steps.approved import key_ring
from tasc_pipeline.steps.new_study import NewStudy, StudyOutcome, new_study
from tasc_pipeline.steps.probe import ProbeOptions, probe_endpoint
from tasc_pipeline.steps.watch import Show, watching

LEAD_S = 3.0
"""The demo's window starts a few seconds ahead: it is sealed before anything is collected."""


def ensure_study(home: Home, wanted: NewStudy, say: Callable[[str], None]) -> StudyOutcome | None:
    """Make the study, or use the one that an earlier demo left (then None).

    Raises:
        InputError: the earlier study means an engine of another configuration than the one that now runs.
    """
    if home.study(wanted.study_id).exists():
        meant = {endpoint.configuration_digest for endpoint in load_study(home, wanted.study_id).endpoints.values()}
        for server in (wanted.champion, *wanted.candidates):
            if server.configuration_digest is not None and server.configuration_digest not in meant:
                raise InputError(
                    "an engine's recipe or model file has changed since the demo's study was made",
                    where=wanted.study_id,
                    field="configuration_digest",
                    way_out="restore the recipe, or compare the new one in a state folder of its own: set TASC_HOME",
                )
        say(f"study {wanted.study_id}: as an earlier run left it")
        return None
    outcome = new_study(home, wanted, datetime.now(UTC))
    say(
        f"study {wanted.study_id}: {outcome.cases} cases x {wanted.replicates} replicates x {len(outcome.found)} servers, "
        f"route {outcome.study.targets[0].route}"
    )
    if isinstance(outcome.rules, Comparison):
        for note in study_notes(outcome.groups, outcome.rules.margins, outcome.rules.rule):
            say(note)
    return outcome


def ports_of(home: Home, study_id: str) -> tuple[int, int] | None:
    """Loopback ports of champion and candidate in a study that an earlier demo left, because its plans name them."""
    if not home.study(study_id).exists():
        return None
    origins = {item.alias: item.origin for item in load_study(home, study_id).endpoints.values()}
    return parse_origin(origins["champion"]).port, parse_origin(origins["candidate"]).port


def admit_chat(home: Home, study_id: str, say: Callable[[str], None]) -> None:
    """Obtain the receipt that admits chat completions of each server of a study: one canary call to each.

    Raises:
        TascError: a server did not answer as its profile says; no receipt admits it, and no window is collected.
    """
    for endpoint in load_study(home, study_id).endpoints.values():
        options = ProbeOptions(Effect.INFERENCE_CANARY)
        receipt = probe_endpoint(home, study_id, endpoint.alias, Capability.CHAT_COMPLETIONS, options).receipt
        say(f"canary of {endpoint.alias}: {receipt.capability} {receipt.state}, receipt {receipt.digest[:23]}…")


def unfinished(home: Home, study_id: str) -> str | None:
    """Key of a window of the study that was begun and not closed, the newest one."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    for key in reversed(window_keys(home)):
        folder = WindowFolder(home, key)
        ring = key_ring(home)
        declaration = folder.declaration(ring).record
        begun = declaration.study_id == study_id and not folder.has(LINK)
        if begun and (home.run(key).exists() or now < declaration.event_time_end_exclusive):
            return key
    return None


def run_window(
    home: Home, study_id: str, say: Callable[[str], None], show: Show
) -> tuple[str, AssessmentReport] | None:
    """Finish the window that an earlier run left, or add a new one.

    Args:
        home: the state folder.
        study_id: the study.
        say: one line of what happens.
        show: progress of the collection.

    Returns:
        The window's key and report; None where it was interrupted, which is said.

    Raises:
        TascError: the job did not succeed; says how to see why.
    """
    key = unfinished(home, study_id)
    if key is None:
        declaration = seal.seal(
            home,
            study_id,
            seal.SealOptions(lead_s=LEAD_S),
            datetime.now(UTC),
            add_partition=lambda made: add_partition(home, made),
        )
        key = declaration.window_key
        say(f"sealed {key}")
    else:
        say(f"finishing {key}, which an earlier run left")
        add_partition(home, key)
    folder = WindowFolder(home, key)
    if not folder.has(PLAN):
        made, estimate = plan.make_plan(home, key, datetime.now(UTC), write=True)
        say(
            f"plan {made.digest[:23]}…: {estimate.calls} calls and {estimate.warm_up_calls} warm-up calls, "
            f"at most {estimate.output_tokens} output tokens"
        )
    if not folder.has(APPROVAL):
        plan.approve(home, key, folder.plan(key_ring(home)).record.digest, datetime.now(UTC))
        say("approved with the operator's key")
    for job in ("shadow_window", "assess_window"):
        say(f"Dagster job {job} on this partition")
        with watching(show):
            end = run_job(home, job, key)
        if end.interrupted:
            say(f"interrupted: what was in flight is written down; to finish {key}, run the same command again")
            return None
        if not end.succeeded:
            raise TascError(
                f"the job {job} did not succeed{f': {end.reason}' if end.reason else ''}",
                where=key,
                way_out=f"see why with `tasc ui`, then run the same command again; or without Dagster: tasc collect {key}",
            )
    return key, folder.report().record


def example_prompts() -> Path:
    """The example's prompts.

    Raises:
        InputError: the folder ``examples`` is not beside the package, as in an installation without a checkout.
    """
    path = Path(__file__).resolve().parents[2] / "examples" / "comparison" / "prompts.txt"
    if not path.is_file():
        raise InputError(
            "the example's prompts are not here",
            where=str(path),
            way_out="run the demo from a checkout, or name your own: tasc study new --prompts FILE",
        )
    return path
