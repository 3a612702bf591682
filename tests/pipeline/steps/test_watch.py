"""Long work says how far it is: to a terminal, to Dagster, to both, in numbers that end where the work ends."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from rich.console import Console

from tasc_collector.shadow.progress import STARTS_IN, Snapshot
from tasc_pipeline.cli import show_progress
from tasc_pipeline.clock import utc_now
from tasc_pipeline.home.studies import load_study
from tasc_pipeline.instance import add_partition, instance_of
from tasc_pipeline.steps import assess, close, collect, publish, verify
from tasc_pipeline.steps.export import export_traces
from tasc_pipeline.steps.privacy import search
from tasc_pipeline.steps.probe_rounds import passive_probes, probe_passively
from tasc_pipeline.steps.watch import Unfinished, also_watching, counted, watching
from tasc_pipeline.warehouse.compaction import compact
from tasc_pipeline.warehouse.manifests import verify_parts
from tests.support.window import World, world

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture
def made(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as found:
        yield found


def nothing(_: object) -> None:
    """Progress that nobody looks at."""


def steps(seen: list[Snapshot], what: str) -> list[tuple[int, int]]:
    return [(each.done, each.total) for each in seen if each.what.startswith(what)]


def test_collecting_publishing_and_assessing_tell_whoever_watches(made: World) -> None:
    key = made.approved_window()
    seen: list[Snapshot] = []
    with watching(seen.append):
        collect.collect(made.home, key, show=nothing, show_every_s=0.0)
        publish.publish(made.home, key)
        close.close(made.home, key)
        assess.assess(made.home, key)
    calls = [each for each in seen if not each.what]
    assert calls[-1].total == 12
    published = steps(seen, "publishing 12 executions")
    assert published == [(done, published[-1][1]) for done in range(len(published))] and len(published) > 5
    assert steps(seen, "assessing") == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_a_round_of_probes_tells_whoever_watches(made: World) -> None:
    total = len(tuple(passive_probes(made.home, load_study(made.home, "first"))))
    seen: list[Snapshot] = []
    with watching(seen.append):
        probe_passively(made.home, "first")
    assert total > 2
    assert steps(seen, "probing first") == [(done, total) for done in range(total + 1)]


def test_compaction_tells_the_rows(made: World) -> None:
    for _ in range(2):
        key = made.approved_window()
        collect.collect(made.home, key, show=nothing)
        publish.publish(made.home, key)
    approved = collect.load_approved(made.home, key)
    seen: list[Snapshot] = []
    with watching(seen.append):
        compact(
            made.home.warehouse,
            "traces",
            sign=publish.manifest_signer(made.home, approved),
            clock=utc_now,
            watch=counted,
        )
    assert steps(seen, "compacting traces")[0] == (0, 24)
    assert steps(seen, "compacting traces")[-1] == (24, 24)


def test_a_second_watcher_is_told_at_its_own_pace() -> None:
    everybody: list[Snapshot] = []
    seldom: list[Snapshot] = []
    with watching(everybody.append), also_watching(seldom.append, every_s=3600):
        tell = counted("work", 3)
        for _ in range(3):
            tell(1)
    assert steps(everybody, "work") == [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert seldom == []


def test_a_silent_step_is_told_again_with_the_time_that_passed() -> None:
    seen: list[Snapshot] = []
    reminded = threading.Semaphore(0)

    def show(snapshot: Snapshot) -> None:
        seen.append(snapshot)
        reminded.release()

    with also_watching(show, every_s=0.05):
        counted("publishing", 8)(3)
        for _ in range(4):
            assert reminded.acquire(timeout=30), "one at every interval, though nothing was told since"
    third, fourth = seen[2:4]  # at most the first two were told by the work itself
    assert (third.what, third.done, third.total) == (fourth.what, fourth.done, fourth.total) == ("publishing", 3, 8)
    assert third.elapsed_s < fourth.elapsed_s


def test_a_finished_piece_uncovers_the_unfinished_one_around_it() -> None:
    unfinished = Unfinished()

    def after(what: str, done: int, total: int) -> str | None:
        unfinished.tell(Snapshot(done, total, 0, {}, 1.0, what))
        found = unfinished.innermost()
        return None if found is None else f"{found[0].what} {found[0].done}/{found[0].total}"

    assert unfinished.innermost() is None
    assert after("outer", 0, 2) == "outer 0/2"
    assert after("inner", 0, 3) == "inner 0/3"
    assert after("innermost", 1, 2) == "innermost 1/2"
    assert after("innermost", 2, 2) == "inner 0/3"
    assert after("inner", 3, 3) == "outer 0/2"
    assert after("another", 1, 9) == "another 1/9"
    assert after("outer", 1, 2) == "outer 1/2", "what was inside is over, though it did not say so"
    assert after("outer", 2, 2) is None


def test_work_that_sends_gives_way_to_what_follows_it() -> None:
    unfinished = Unfinished()
    unfinished.tell(Snapshot(3, 8, 2, {}, 1.0))
    unfinished.tell(Snapshot(1, 2, 0, {}, 1.0, "publishing"))
    unfinished.tell(Snapshot(2, 2, 0, {}, 1.0, "publishing"))
    assert unfinished.innermost() is None


def test_a_silent_outer_step_is_told_again_after_its_inner_one() -> None:
    seen: list[Snapshot] = []
    reminded = threading.Semaphore(0)

    def show(snapshot: Snapshot) -> None:
        seen.append(snapshot)
        reminded.release()

    with also_watching(show, every_s=0.05):
        counted("publishing", 8)(3)
        counted("reading", 2)(2)
        for _ in range(4):
            assert reminded.acquire(timeout=30), "the inner one is finished, the outer one is not"
    assert [(each.what, each.done) for each in seen[3:]] == [("publishing", 3)] * len(seen[3:])


def test_a_later_piece_of_work_is_told_after_a_longer_one() -> None:
    seen: list[str] = []
    with also_watching(lambda snapshot: seen.append(snapshot.what), every_s=0.0):
        counted("long", 2)(2)
        counted("short", 2)(1)
    assert seen == ["long", "long", "short", "short"]


def test_every_command_that_reads_a_whole_window_tells_how_far_it_is(made: World, tmp_path: Path) -> None:
    key = made.approved_window()
    collect.collect(made.home, key, show=nothing)
    publish.publish(made.home, key)
    for work, told in (
        (
            lambda: close.close(made.home, key),
            ["verifying the journal", "reading the journal", "reading executions"],
        ),
        (
            lambda: verify.verify_window(made.home, key),
            [
                "verifying the journal",
                "reading the journal",
                "reading executions",
                "verifying executions",
                "comparing tables",
            ],
        ),
        (lambda: list(export_traces(made.home, key)), ["reading the journal", "reading executions"]),
        (lambda: search([made.home.window(key)], ["nothing like this"]), ["searching files"]),
        (
            lambda: verify_parts(made.home.warehouse, watch=counted),
            ["verifying manifests of tables", "verifying parts"],
        ),
    ):
        seen: list[Snapshot] = []
        with watching(seen.append):
            work()
        assert list(dict.fromkeys(each.what for each in seen)) == told, "from its first second on"
        for what in told:
            first, *_, (done, total) = steps(seen, what)
            assert first == (0, total)
            assert done == total == (12 if "executions" in what or "the journal" in what else total) > 0


def test_a_pass_over_the_journal_of_a_window_that_was_cut_off_ends_too(made: World) -> None:
    key = made.approved_window()
    collect.collect(made.home, key, show=nothing, send=False)
    seen: list[Snapshot] = []
    with watching(seen.append):
        publish.publish(made.home, key)
    assert steps(seen, "reading the journal") == [(0, 12), (12, 12)]


def test_a_line_has_done_and_total_rate_and_time_left() -> None:
    snapshot = Snapshot(20, 80, 4, {"success": 19, "failure": 1}, 10.0)
    assert show_progress.line_of(snapshot) == "20/80  2.0/s, 30 s left  failure 1  success 19"
    assert show_progress.line_of(Snapshot(0, 8, 0, {}, 0.5, "publishing")) == "publishing 0/8"


class Spoken(io.StringIO):
    """A file that wakes whoever waits for a line."""

    def __init__(self) -> None:
        super().__init__()
        self.lines = threading.Semaphore(0)

    def write(self, text: str) -> int:
        written = super().write(text)
        for _ in range(text.count("\n")):
            self.lines.release()
        return written


def test_without_a_terminal_a_line_comes_even_while_one_step_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    spoken = Spoken()
    monkeypatch.setattr(show_progress, "err", lambda: Console(file=spoken, width=100))
    monkeypatch.setattr(show_progress, "PLAIN_EVERY_S", 0.05)
    with show_progress.terminal_progress():
        counted("publishing", 8)(3)
        for _ in range(2):
            assert spoken.lines.acquire(timeout=30), "a line at every interval, though nothing was told since"
    said = spoken.getvalue().splitlines()
    assert said[0].startswith("publishing 3/8")
    assert "(nothing new for" in said[-1]


def test_without_a_terminal_a_run_that_waits_for_its_window_says_at_once_how_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spoken = Spoken()
    monkeypatch.setattr(show_progress, "err", lambda: Console(file=spoken, width=100))
    with show_progress.terminal_progress() as show:
        for left_s in (42, 41, 40):
            show(Snapshot(0, 12, 0, {STARTS_IN: left_s}, 0.0))
        assert spoken.getvalue().splitlines() == ["0/12  starts in s 42"]


def test_on_a_terminal_the_line_goes_back_to_the_work_that_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    spoken = io.StringIO()
    monkeypatch.setattr(show_progress, "err", lambda: Console(file=spoken, width=100, force_terminal=True))
    with show_progress.terminal_progress():
        counted("publishing", 8)(3)
        counted("reading", 2)(2)
        spoken.seek(0)
        spoken.truncate()
    assert "publishing 3/8" in spoken.getvalue()
    assert "reading 2/2" not in spoken.getvalue()


def test_dagster_gets_observations_with_the_same_numbers(made: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from tasc_pipeline import checks
    from tasc_pipeline.assets import collection
    from tasc_pipeline.definitions import defs

    monkeypatch.setenv("TASC_HOME", str(made.home.root))
    for module in (collection, checks):
        monkeypatch.setattr(module, "OBSERVE_EVERY_S", 0.0)
    key = made.approved_window()
    add_partition(made.home, key)
    with instance_of(made.home) as instance:
        result = defs.resolve_job_def("shadow_window").execute_in_process(partition_key=key, instance=instance)
    observed = [
        event.asset_observation_data.asset_observation
        for event in result.all_events
        if event.event_type == dg.DagsterEventType.ASSET_OBSERVATION
    ]
    assert {str(each.asset_key.to_user_string()) for each in observed} == {"accepted_traces", "window_manifests"}
    last = {str(each.metadata["what"].value): each.metadata for each in observed}
    assert (last["collecting"]["done"].value, last["collecting"]["total"].value) == (12, 12)
    [publishing] = [each for name, each in last.items() if name.startswith("publishing")]
    assert publishing["done"].value == publishing["total"].value
    assert {each.partition for each in observed} == {key}
    for name in (
        "verifying executions",
        "reading executions",
        "verifying the journal",
        "reading the journal",
        "reading what was planned and sent",
    ):
        assert (last[name]["done"].value, last[name]["total"].value) == (12, 12)
    tables = last["comparing tables"]
    assert tables["done"].value == tables["total"].value > 5
    for each in observed:
        told = each.metadata
        assert ("rate_per_s" in told, "left_s" in told) == (told["done"].value > 0,) * 2, (
            "unknown is absent, never zero"
        )
