"""A window's folder: which records it holds, written once, read with their signatures checked."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tasc_collector.contracts.base import Parsed, Record
from tasc_collector.contracts.case_set import CaseSetFile
from tasc_collector.contracts.collection import CollectionPlan, PlanApproval
from tasc_collector.contracts.decision import AssessmentDecision
from tasc_collector.contracts.manifest import WindowManifest
from tasc_collector.contracts.operations import KeyRing, KeyRole
from tasc_collector.contracts.report import AssessmentReport
from tasc_collector.contracts.scalars import WINDOW_KEY_PATTERN
from tasc_collector.contracts.signed import SignedRecord
from tasc_collector.contracts.window import WindowDeclaration, WindowLink
from tasc_collector.errors import DigestMismatch, InputError
from tasc_collector.wire.records import read_record_file
from tasc_pipeline.control.windows import check_revision
from tasc_pipeline.home import keys
from tasc_pipeline.home.files import make_folder, write_file
from tasc_pipeline.home.layout import Home

R = TypeVar("R", bound=Record)
S = TypeVar("S", bound=SignedRecord)

DECLARATION, CASE_SET, PLAN, APPROVAL, MANIFEST, LINK, DECISION, REPORT = (
    "declaration.json",
    "case-set.json",
    "plan.json",
    "approval.json",
    "manifest.json",
    "link.json",
    "decision.json",
    "assessment.json",
)


@dataclass(frozen=True, slots=True)
class WindowFolder:
    """The records of one window."""

    home: Home
    window_key: str

    @property
    def path(self) -> Path:
        """Where they are."""
        return self.home.window(self.window_key)

    def has(self, name: str) -> bool:
        """Whether a record is there.

        Raises:
            InputError: the folder cannot be read.
        """
        try:
            return (self.path / name).is_file()
        except OSError:
            raise InputError(
                "the window's folder cannot be read", where=self.window_key, way_out="check its owner and mode"
            ) from None

    def write(self, name: str, record: Record) -> Path:
        """Write a record once; the same record again is fine, another is refused."""
        make_folder(self.path)
        write_file(self.path / name, record.canonical())
        return self.path / name

    def declaration(self, ring: KeyRing) -> Parsed[WindowDeclaration]:
        """The declaration, with its signature checked and that the window's key is its own.

        Raises:
            InputError: there is none; the way out is ``tasc seal``.
            SignatureError: the signature is not that of these bytes.
            NotAuthorized: the signing key is not the operator's or the dispatch key, or was not valid then.
            DigestMismatch: the key does not end in this declaration's digest.
        """
        parsed = self._signed(
            WindowDeclaration, DECLARATION, ring, ("operator", "dispatch"), "declared_at", "run: tasc seal STUDY"
        )
        if parsed.record.window_key != self.window_key:
            raise DigestMismatch(
                "the declaration does not give this window key",
                where=str(self.path / DECLARATION),
                rule="the key ends in the declaration's digest",
                way_out="use the key that `tasc status` shows; restore the file if it was edited",
            )
        return parsed

    def origin(self, ring: KeyRing) -> WindowFolder:
        """The folder of revision 1, under whose plan everything was collected; this one where it is no revision.

        Raises:
            InputError: a predecessor is not there, or a revision changed more than its watermark.
        """
        folder, declaration = self, self.declaration(ring).record
        while (key := declaration.predecessor_key) is not None:
            folder = WindowFolder(self.home, key)
            if not folder.has(DECLARATION):
                raise InputError(
                    "the revision's predecessor is not here",
                    where=self.window_key,
                    field="predecessorDigest",
                    way_out=f"restore the folder of window {key}",
                )
            before = folder.declaration(ring).record
            check_revision(before, declaration)
            declaration = before
        return folder

    def case_set(self) -> Parsed[CaseSetFile]:
        """The planned cases, by keyed identity."""
        return read_record_file(CaseSetFile, self._existing(CASE_SET, f"run: tasc plan {self.window_key}"))

    def plan(self, ring: KeyRing) -> Parsed[CollectionPlan]:
        """The plan, with its signature checked; whether it is approved is another question.

        Raises:
            InputError: there is none; the way out is ``tasc plan``.
            SignatureError: the signature is not that of these bytes.
            NotAuthorized: the signing key is not the operator's or the dispatch key, or was not valid then.
            DigestMismatch: the plan is for another window.
        """
        way_out = f"run: tasc plan {self.window_key}"
        parsed = self._signed(CollectionPlan, PLAN, ring, ("operator", "dispatch"), "issued_at", way_out)
        if parsed.record.window_key != self.window_key:
            raise DigestMismatch(
                "the plan is for another window", where=str(self.path / PLAN), field="windowKey", way_out=way_out
            )
        return parsed

    def approval(self, ring: KeyRing) -> Parsed[PlanApproval]:
        """The operator's pin."""
        return self._signed(
            PlanApproval,
            APPROVAL,
            ring,
            ("operator",),
            "approved_at",
            f"run: tasc plan approve {self.window_key} DIGEST",
        )

    def link(self, ring: KeyRing) -> Parsed[WindowLink]:
        """The link that closed the window."""
        return self._signed(WindowLink, LINK, ring, ("collector",), "closed_at", f"run: tasc collect {self.window_key}")

    def manifest(self) -> WindowManifest:
        """The window's manifest; its own digest is checked."""
        return read_record_file(WindowManifest, self._existing(MANIFEST, f"run: tasc collect {self.window_key}")).record

    def decision(self) -> Parsed[AssessmentDecision]:
        """The decision of engine v2 on a window of a decision study; its own digest is checked."""
        return read_record_file(AssessmentDecision, self._existing(DECISION, f"run: tasc assess {self.window_key}"))

    def report(self) -> Parsed[AssessmentReport]:
        """The newest assessment."""
        return read_record_file(AssessmentReport, self._existing(REPORT, f"run: tasc assess {self.window_key}"))

    def _existing(self, name: str, way_out: str) -> Path:
        if not self.has(name):
            raise InputError(f"the window has no {name}", where=self.window_key, way_out=way_out)
        return self.path / name

    def _signed(
        self, cls: type[S], name: str, ring: KeyRing, roles: tuple[KeyRole, ...], at: str, way_out: str
    ) -> Parsed[S]:
        path = self._existing(name, way_out)
        parsed = read_record_file(cls, path)
        signed_at: str = getattr(parsed.record, at)
        key = keys.public_key(ring, parsed.record.signature.authority_key_id, roles, signed_at, where=str(path))
        cls.check_signature(parsed, key, where=str(path))
        return parsed


def window_folder(home: Home, window_key: str) -> WindowFolder:
    """The folder of a window that was sealed.

    Raises:
        InputError: the key breaks its grammar, or no such window was sealed.
    """
    if not re.fullmatch(WINDOW_KEY_PATTERN, window_key) or ".." in window_key:
        raise InputError(
            "this is no window key", where=window_key[:80], rule=WINDOW_KEY_PATTERN, way_out="run: tasc status"
        )
    folder = WindowFolder(home, window_key)
    if not folder.has(DECLARATION):
        raise InputError(
            "no window with this key was sealed",
            where=window_key,
            way_out="run: tasc status, or seal one: tasc seal STUDY",
        )
    return folder


def window_keys(home: Home) -> list[str]:
    """Keys of all sealed windows, oldest folder name first."""
    return (
        sorted(entry.name for entry in home.windows.iterdir() if (entry / DECLARATION).is_file())
        if home.windows.is_dir()
        else []
    )
