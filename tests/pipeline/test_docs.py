"""Every command of the pages that a newcomer reads is run, in the order of the page, and succeeds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasc_pipeline.steps import assess, close, collect, publish
from tests.support import security_page
from tests.support.doc_pages import DOCS, ELSEWHERE, ROOT, Reader, begun, commands
from tests.support.window import World, world

pytestmark = pytest.mark.usefixtures("undrawn")

PAGES = (
    "quickstart",
    "use-ui",
    "use-sensors",
    "use-shell",
    "use-duckdb",
    "operators-guide",
    "authorizations",
    "security",
    "deployment",
)


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, str]]:
    """What the pages start from: the study ``first`` with one assessed window."""
    with world(tmp_path_factory.mktemp("docs"), recurring=True) as made:
        key = made.approved_window()
        collect.collect(made.home, key, show=lambda _: None)
        publish.publish(made.home, key)
        close.close(made.home, key)
        assess.assess(made.home, key)
        yield made, key


@pytest.fixture
def reader(closed: tuple[World, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    made, key = closed
    (tmp_path / "needles.txt").write_text("a canary that is nowhere\n")
    return Reader(made, tmp_path, monkeypatch, {"KEY": key})


@pytest.mark.parametrize("name", PAGES)
def test_the_commands_of_a_page_do_what_it_says(reader: Reader, name: str) -> None:
    page = DOCS / f"{name}.md"
    reader.read(page)
    assert len(reader.ran) + len(reader.left) == len(commands(page)) > 0
    if name != "use-ui":
        assert reader.ran


def test_a_page_whose_command_fails_fails(reader: Reader, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("```console\n$ tasc status\n$ tasc verify no-such-window\n```\n")
    with pytest.raises(AssertionError, match="tasc verify no-such-window"):
        reader.read(tmp_path / "page.md")
    assert reader.ran == ["tasc status"]


def test_what_is_left_out_is_left_to_a_test_that_exists() -> None:
    for begin, test in ELSEWHERE.items():
        assert (ROOT / test).is_file() or "/" not in test, begin
    used = {
        begin
        for page in PAGES
        for command in commands(DOCS / f"{page}.md")
        for begin in ELSEWHERE
        if begun(command, begin)
    }
    assert used <= set(ELSEWHERE)


def test_every_link_of_every_page_leads_somewhere() -> None:
    for page in (*DOCS.glob("*.md"), ROOT / "README.md", ROOT / "SECURITY.md"):
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            name, _, anchor = target.partition("#")
            if re.match(r"[a-z]+:", name):
                continue
            there = (page.parent / name) if name else page
            assert there.exists(), f"{page.name}: {target}"
            if anchor and there.suffix == ".md":
                titles = re.findall(r"^#+ (.+)$", there.read_text(), flags=re.MULTILINE)
                assert anchor in {slug(title) for title in titles}, f"{page.name}: {target}"


def slug(title: str) -> str:
    """The anchor of a heading."""
    return re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")


def test_every_page_is_listed() -> None:
    index = (DOCS / "README.md").read_text()
    missing = [page.name for page in DOCS.glob("*.md") if page.name != "README.md" and f"({page.name})" not in index]
    assert missing == []


def test_the_security_page_is_what_the_schemas_say() -> None:
    assert security_page.PAGE.read_text() == security_page.page(), "run: python -m tests.support.security_page"
    assert "|  |\n" not in security_page.page(), "every record says what it is"


def test_the_threat_model_covers_every_kind_and_names_checks_that_exist() -> None:
    rows = re.findall(
        r"^\| ([A-Z][a-z ]+) \|.*\| `([^`]+)` \|$", (DOCS / "threat-model.md").read_text(), flags=re.MULTILINE
    )
    assert {kind for kind, _ in rows} == {
        "Spoofing",
        "Tampering",
        "Repudiation",
        "Information disclosure",
        "Denial of service",
        "Elevation of privilege",
    }
    assert [check for _, check in rows if not (ROOT / check).is_file()] == []


def test_commands_are_read_from_console_blocks_only(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(
        "```console\n$ tasc seal first    # prints a key\n$ tasc sql \\\n    @coverage\noutput\n```\n```sh\n$ no\n```\n"
    )
    assert commands(tmp_path / "page.md") == ["tasc seal first", "tasc sql @coverage"]
