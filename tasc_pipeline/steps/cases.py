"""The operator's cases: read from the study's file when a plan is made and when it is collected; never stored."""

from __future__ import annotations

from tasc_collector.contracts.collection import Purpose
from tasc_collector.errors import InputError
from tasc_collector.shadow.cases import Case, read_cases
from tasc_pipeline.control import purposes
from tasc_pipeline.home.studies import LoadedStudy


def study_cases(loaded: LoadedStudy) -> tuple[Case, ...]:
    """The operator's cases, in memory only.

    Raises:
        InputError: the file is not there, or a line of it breaks a rule; no text of a case is in the message.
    """
    path = loaded.cases_path
    if not path.is_file():
        raise InputError(
            "the case file is not there", where=path.name, way_out="put it back, or correct `cases` in study.toml"
        )
    replicates = loaded.comparison.record.replicates if loaded.comparison else 1
    with path.open("rb") as lines:
        return read_cases(lines, loaded.study.cases_format, where=path.name, replicates=replicates)


def purpose_cases(loaded: LoadedStudy, purpose: Purpose) -> tuple[Case, ...]:
    """The operator's cases that a purpose collects: those of its split, or all.

    Raises:
        InputError: the file breaks a rule, or no case is of that split.
    """
    membership = None if loaded.protocol is None else loaded.protocol.record.split_membership
    cases = purposes.cases_of(purpose, membership, study_cases(loaded))
    if not cases:
        raise InputError(
            f"no case belongs to the {purpose} split",
            where=loaded.cases_path.name,
            field="groupId",
            rule="a seeded hash of the group id decides; splitMembership of the protocol",
            way_out="add cases of further groups to the file",
        )
    return cases
