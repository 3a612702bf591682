"""The next experiment that a study's newest decision suggests: made from files, kept by its digest.

A budget stands in the study's folder (``experiment-budget.json``) or is named; what was registered and found before
stands beside it (``experiment-history.json``) and is empty where there is no such file. A proposal is written to
``studies/<study>/proposals/`` under its digest. It registers nothing: that is a new study, made by the operator.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tasc_collector.contracts.proposal import ExperimentBudget, ExperimentHistory
from tasc_collector.errors import InputError
from tasc_collector.wire.records import read_record_file
from tasc_pipeline.control.decided import Decided
from tasc_pipeline.control.proposals import Proposal, propose
from tasc_pipeline.home import keys
from tasc_pipeline.home.controller import read_chain
from tasc_pipeline.home.files import make_folder, write_file
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.studies import LoadedStudy, load_study
from tasc_pipeline.home.window_index import window_facts
from tasc_pipeline.home.windows import REPORT, WindowFolder
from tasc_pipeline.steps.decided import decided_record, read_decided, read_decision_file

BUDGET: Final = "experiment-budget.json"
HISTORY: Final = "experiment-history.json"
PROPOSALS: Final = "proposals"


@dataclass(frozen=True, slots=True)
class ProposalFiles:
    """Files that are named instead of those of the study; None takes the study's.

    Args:
        decision: the decision to follow from.
        budget: the most that the next experiment may use.
        history: what was registered and found before.
    """

    decision: Path | None = None
    budget: Path | None = None
    history: Path | None = None


def propose_next(home: Home, study_id: str, files: ProposalFiles | None = None) -> tuple[Proposal, Path]:
    """Propose and keep the next experiment; the same question again gives the same file.

    Raises:
        InputError: there is no decision or budget, or a file breaks a rule.
    """
    files, loaded = files or ProposalFiles(), load_study(home, study_id)
    named = None if files.decision is None else decided_record(loaded, read_decision_file(files.decision))
    decision = named or _last_recorded(home, loaded)
    if decision.protocol_digest != loaded.protocol_digest:
        raise InputError(
            "the decision is of another protocol",
            where=study_id,
            field="protocolDigest",
            way_out="name a decision of this study",
        )
    budget = files.budget or loaded.folder / BUDGET
    if not budget.is_file():
        raise InputError(
            "there is no budget for a next experiment",
            where=study_id,
            field=BUDGET,
            rule="tasc-experiment-budget-v1",
            way_out=f"write {BUDGET} into the study's folder, or name one with --budget",
        )
    history = files.history or loaded.folder / HISTORY
    proposal = propose(
        decision,
        read_record_file(ExperimentHistory, history).record
        if history.is_file()
        else ExperimentHistory.issue(registered_experiments=(), findings=()),
        read_record_file(ExperimentBudget, budget).record,
    )
    folder = loaded.folder / PROPOSALS
    make_folder(folder)
    path = folder / f"{proposal.decision_digest.removeprefix('sha256:')[:16]}.json"
    write_file(path, proposal.canonical())
    return proposal, path


def _last_recorded(home: Home, loaded: LoadedStudy) -> Decided:
    """The decision of the controller's last assessment."""
    ring = keys.read_ring(home)
    assessments, study_id = read_chain(home, loaded).current.assessments, loaded.study.study_id
    wanted = assessments[-1].decision_digest if assessments else None
    for facts in window_facts(home).values():
        folder = WindowFolder(home, facts.window_key)
        if facts.study_id == study_id and wanted is not None and folder.has(REPORT):
            decided = read_decided(loaded, folder, ring)
            if wanted == decided.decision_digest:
                return decided
    raise InputError(
        "the controller has recorded no decision whose file is here",
        where=study_id,
        way_out=f"name it with --decision FILE, or record one: tasc controller advance {study_id}",
    )
