"""Where notices lie: ``studies/<study>/notices/<name>.json``, each written once, and ``notices.toml``, the rules for them.

The name of a notice says what it is about (its kind, window and what is told), so that telling the same again writes
nothing. Beside it, ``<name>.post.json`` says what became of its one POST. ``.<window>.again`` is the mark of an assessed
window whose look failed and is made again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tasc_collector.contracts.notices import NoticePost, NoticeRules
from tasc_collector.contracts.operations import Notice
from tasc_collector.wire.records import read_record_file
from tasc_pipeline.home.files import make_folder, write_file
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.toml_records import read_toml

RULES: Final = "notices.toml"
FOLDER: Final = "notices"
WEBHOOK_ALIAS: Final = "notices"
"""Alias under which a study's network extension may open the webhook's address."""
_POST: Final = ".post.json"
_AGAIN: Final = ".again"


@dataclass(frozen=True, slots=True)
class StoredNotice:
    """A notice that was told."""

    path: Path
    notice: Notice

    @property
    def post_path(self) -> Path:
        """Where the outcome of its POST is, or will be."""
        return self.path.with_name(self.path.stem + _POST)

    def post(self) -> NoticePost | None:
        """What became of its POST; None where there was none."""
        return read_record_file(NoticePost, self.post_path).record if self.post_path.is_file() else None


def read_rules(home: Home, study_id: str) -> NoticeRules:
    """The study's rules for notices; the defaults where it has no ``notices.toml``.

    Raises:
        InputError: the file breaks a rule.
    """
    path = home.study(study_id) / RULES
    return read_toml(NoticeRules, path) if path.is_file() else NoticeRules()


def store(home: Home, notice: Notice, *, about: str = "") -> StoredNotice | None:
    """Keep a notice durably; None where the same was told before.

    Args:
        home: the state folder.
        notice: what is told.
        about: tells two notices of one kind and window apart where their words do not, such as a run's id.
    """
    folder = home.study(notice.study_id) / FOLDER
    parts = (notice.kind, notice.window_key or "none", notice.before, notice.after, about)
    path = folder / ("--".join(part for part in parts if part) + ".json")
    if path.exists():
        return None
    make_folder(folder)
    write_file(path, notice.canonical(), replace=True)
    return StoredNotice(path, notice)


def stored(home: Home, study_id: str) -> Iterator[StoredNotice]:
    """Every notice of a study, oldest first.

    Raises:
        InputError: a file is no notice.
    """
    folder = home.study(study_id) / FOLDER
    if not folder.is_dir():
        return
    paths = [path for path in folder.glob("*.json") if not path.name.endswith(_POST) and path.name[0] != "."]
    found = [StoredNotice(path, read_record_file(Notice, path).record) for path in paths]
    yield from sorted(found, key=lambda item: (item.notice.at, item.path.name))


def set_aside(home: Home, study_id: str, window_key: str) -> None:
    """Mark durably that what a window tells is to be looked at again.

    Raises:
        InputError: the folder cannot be written.
    """
    folder = home.study(study_id) / FOLDER
    make_folder(folder)
    write_file(_mark(home, study_id, window_key), b"", replace=True)


def looked_at(home: Home, study_id: str, window_key: str) -> None:
    """Take the mark away, where there is one."""
    _mark(home, study_id, window_key).unlink(missing_ok=True)


def to_look_at(home: Home, study_id: str) -> list[str]:
    """Keys of the windows that are marked."""
    marks = (home.study(study_id) / FOLDER).glob(f".*{_AGAIN}")
    return sorted(path.name.removesuffix(_AGAIN).removeprefix(".") for path in marks)


def _mark(home: Home, study_id: str, window_key: str) -> Path:
    return home.study(study_id) / FOLDER / f".{window_key}{_AGAIN}"


@contextlib.contextmanager
def only_poster(home: Home, study_id: str) -> Iterator[bool]:
    """True inside the block where no other process posts notices of the study, and none can while it lasts."""
    folder = home.study(study_id) / FOLDER
    make_folder(folder)
    handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(handle)


def write_post(item: StoredNotice, post: NoticePost) -> None:
    """Say durably what became of a notice's POST; only the one poster may."""
    write_file(item.post_path, post.canonical(), replace=True)
