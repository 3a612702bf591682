"""The ledger of a study on real files and processes: one writer at a time, nothing lost by a crash, nothing forged."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tasc_collector.contracts.study import Study
from tasc_collector.errors import JournalCorrupt, JournalLocked, NotAuthorized
from tasc_collector.journal import OsFileSystem
from tasc_pipeline.control.authorizations import Reserved, Settled, Spend, check_spend
from tasc_pipeline.home import Home
from tasc_pipeline.home.ledger import open_ledger, read_entries
from tasc_pipeline.home.studies import load_study
from tests.support.authorized import authorized
from tests.support.processes import next_line
from tests.support.window import World, world

AT = "2026-03-01T12:00:00.000Z"
ONE = Spend(1, 14, 98, 0, 0.25)
WORD = "sha256:" + "1" * 64


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]  # yields a World
    with world(tmp_path_factory.mktemp("ledger"), cases=2, recurring=True) as found:
        yield found


@pytest.fixture
def study(made: World) -> Study:
    """A study with a ledger of its own."""
    import shutil

    shutil.rmtree(made.home.ledger("first"), ignore_errors=True)
    return load_study(made.home, "first").study


def test_what_is_reserved_and_settled_is_read_again(made: World, study: Study) -> None:
    with open_ledger(made.home, study) as ledger:
        ledger.reserve(Reserved("w1", WORD, AT, ONE))
        ledger.reserve(Reserved("w2", WORD, AT, ONE))
        ledger.settle(Settled("w1", AT, Spend(1, 3, 7, 0, 0.5)))
        assert [entry.counted.calls for entry in ledger.entries.values()] == [3, 14]
    entries = read_entries(made.home, study)
    assert list(entries) == ["w1", "w2"]
    assert (entries["w1"].reserved, entries["w1"].used, entries["w1"].at) == (ONE, Spend(1, 3, 7, 0, 0.5), AT)
    assert entries["w2"].counted == ONE and entries["w2"].authorization_digest == WORD
    sizes = sum(path.stat().st_size for path in made.home.ledger("first").glob("segment-*"))
    assert sizes < 256 * 1024, "a small ledger is a small file"


def test_there_is_nothing_in_a_ledger_that_was_never_opened(made: World, study: Study) -> None:
    assert read_entries(made.home, study) == {}


def test_a_ledger_that_somebody_holds_is_waited_for_and_then_refused_with_who_it_is(made: World, study: Study) -> None:
    waited: list[float] = []
    with open_ledger(made.home, study) as ledger:
        ledger.reserve(Reserved("w1", WORD, AT, ONE))
        with pytest.raises(JournalLocked, match="in use by process"):
            with open_ledger(made.home, study, wait_s=0.1, sleep=waited.append):
                pass
        assert read_entries(made.home, study)["w1"].counted == ONE, "reading needs no lock"
    assert waited == [0.02] * 5


def test_two_that_come_at_once_cannot_both_pass_a_ceiling_that_allows_one(made: World, study: Study) -> None:
    word = authorized(made.home, authorization_id="race", windows_per_day=1)
    at = word.issued_at
    passed: list[str] = []
    refused: list[str] = []
    start = threading.Barrier(8)

    def reserve(name: str) -> None:
        start.wait(60)
        with open_ledger(made.home, study) as ledger:
            try:
                check_spend(word, ledger.entries, ONE, reference=name, as_of=at)
            except NotAuthorized as error:
                refused.append(str(error.field))
                return
            ledger.reserve(Reserved(name, word.digest, at, ONE))
            passed.append(name)

    threads = [threading.Thread(target=reserve, args=(f"w{index}",)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(passed) == 1 and refused == ["ceilings.windowsPerDay"] * 7
    assert list(read_entries(made.home, study)) == passed


CHILD = """
import sys
from pathlib import Path
from tasc_pipeline.control.authorizations import Reserved, Spend
from tasc_pipeline.home import Home
from tasc_pipeline.home.ledger import open_ledger
from tasc_pipeline.home.studies import load_study

home = Home(Path(sys.argv[1]))
with open_ledger(home, load_study(home, "first").study) as ledger:
    ledger.reserve(Reserved("w1", sys.argv[2], sys.argv[3], Spend(1, 14, 98, 0, 0.25)))
    print("reserved", flush=True)
    sys.stdin.read()
"""


def test_a_process_that_is_killed_leaves_its_reservation_spent_and_its_lock_free(made: World, study: Study) -> None:
    root = Path(__file__).resolve().parents[3]
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(made.home.root), WORD, AT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
    )
    with child:
        assert next_line(child) == "reserved\n"
        child.send_signal(signal.SIGKILL)
        child.wait(30)
    with open_ledger(made.home, study, wait_s=0) as ledger:
        assert ledger.entries["w1"].counted == ONE
        ledger.settle(Settled("w1", AT, Spend()))
    assert read_entries(made.home, study)["w1"].counted == Spend()


def test_a_ledger_that_was_edited_is_refused(made: World, study: Study) -> None:
    with open_ledger(made.home, study) as ledger:
        for name in ("w1", "w2"):
            ledger.reserve(Reserved(name, WORD, AT, ONE))
    [segment] = made.home.ledger("first").glob("segment-*")
    data = segment.read_bytes()
    assert data.count(b'"calls":14') == 2
    segment.write_bytes(data.replace(b'"calls":14', b'"calls":10', 1))
    with pytest.raises(JournalCorrupt):
        read_entries(made.home, study)
    with pytest.raises(JournalCorrupt):
        with open_ledger(made.home, study):
            pass


def test_a_ledger_of_another_study_is_refused(made: World, study: Study) -> None:
    with open_ledger(made.home, study) as ledger:
        ledger.reserve(Reserved("w1", WORD, AT, ONE))
    other = study.model_copy(update={"study_id": "second"})
    made.home.ledger("second").parent.mkdir(exist_ok=True)
    made.home.ledger("first").rename(made.home.ledger("second"))
    from tasc_collector.errors import DigestMismatch

    with pytest.raises(DigestMismatch, match="belongs to another plan or window"):
        read_entries(made.home, other)


def test_a_write_that_fails_reserves_nothing(made: World, study: Study) -> None:
    from tasc_collector.errors import JournalFailed

    class Failing(OsFileSystem):
        def fdatasync(self, descriptor: int) -> None:
            raise OSError(5, "no")

    with pytest.raises(JournalFailed):
        with open_ledger(Home(made.home.root), study, fs=Failing()) as ledger:
            ledger.reserve(Reserved("w1", WORD, AT, ONE))
