"""``tasc assess-files``: a decision study from files alone, exactly as the original project decides it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tasc_pipeline.cli.common import out

FolderArgument = Annotated[
    Path,
    typer.Argument(
        help="Folder with protocol.json, trust-snapshot.json, development-{traces,evidence}.ndjson and -context.json; "
        "holdout-… and online-… likewise, with window-manifest.json for the latter."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("assess-files")(assess_files)


def assess_files(
    folder: FolderArgument,
    to: Annotated[
        Path | None, typer.Option("--out", help="Folder for the records; nothing is written if not given.")
    ] = None,
) -> None:
    """Assess a decision study from files alone: import, join, decisions, controller, next experiment."""
    from tasc_pipeline.cli.controller import print_proposal
    from tasc_pipeline.cli.tables import print_gates
    from tasc_pipeline.control.decisions.from_engine_v2 import result_of
    from tasc_pipeline.steps import file_study as steps

    study, console = steps.assess_files(folder), out()
    paths = () if to is None else steps.write_results(study, to)
    for phase, item in study.phases.items():
        result = result_of(
            item.decision,
            f"tasc assess-files {folder}",
            item.watermark,
            as_of=item.context.as_of,
            cost_model_digest=None,
        )
        print_gates(console, result)
        for reason, count in item.unscoring.items():
            console.print(f"note: {count} pieces of evidence score nothing: {reason}", markup=False)
        console.print(f"{phase}: {item.decision.status}: {result.sentence}", markup=False)
        console.print(f"  as of {item.context.as_of}; decision {item.decision.decision_digest}", markup=False)
    for phase in study.unjudged:
        console.print(f"{phase}: not judged, because development nominated nothing", markup=False)
    controller = study.controller
    console.print(f"controller: {controller.state} after {controller.sequence} events", markup=False)
    if study.not_moved is not None:
        console.print(f"controller: not moved: {study.not_moved}", markup=False)
    if study.proposal is not None:
        print_proposal(console, study.proposal)
    for path in paths:
        console.print(f"kept: {path}", markup=False)
