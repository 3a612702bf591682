"""What goes wrong around a run: cancelled, killed, re-executed, a full disk, a damaged or deleted part.

In every case nothing is sent twice, nothing accepted is lost, and Dagster shows what happened. The servers' own counts
are the oracle. Tests that need the web server, the daemon and a code server are marked ``crash``: they take longer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import dagster as dg
import pytest

from tasc_collector.journal import OsFileSystem, held_by
from tasc_pipeline.definitions import defs
from tasc_pipeline.home import Home
from tasc_pipeline.instance import add_partition, instance_of
from tasc_pipeline.steps.progress_of import run_state
from tasc_pipeline.warehouse.database import connect
from tasc_pipeline.warehouse.disk import Disk
from tests.support.dagster_ui import Served, dagster_ui
from tests.support.processes import wait_until
from tests.support.window import QUICK, World, with_instance, world

SLOW = replace(QUICK, ttft_ms=1_500, itl_ms=5)
"""A run lasts long enough for a second one to start beside it, on a busy machine too."""
CASES = 16
IN_FLIGHT = 4
"""Most calls that are under way at one time: two lanes of two."""


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with world(tmp_path) as found:
        with_instance(found.home)
        monkeypatch.setenv("TASC_HOME", str(found.home.root))
        yield found


def run(home: Home, key: str, job: dg.JobDefinition | None = None) -> dg.ExecuteInProcessResult:
    with instance_of(home) as instance:
        chosen = job or defs.resolve_job_def("shadow_window")
        return chosen.execute_in_process(partition_key=key, instance=instance, raise_on_error=False)


def window(made: World) -> str:
    key = made.approved_window()
    add_partition(made.home, key)
    return key


def complaint(result: dg.ExecuteInProcessResult) -> str:
    """What the UI shows of a failed step."""
    [event] = [event for event in result.all_events if event.is_step_failure]
    error = event.step_failure_data.error
    assert error is not None
    return error.to_string()


def by_case(made: World) -> Counter[tuple[str, str]]:
    """Calls that each server has counted, by its name and the request's digest."""
    sides = (("champion", made.champion), ("candidate", made.candidate))
    return Counter({(name, str(key)): count for name, side in sides for key, count in side.ledger.by_request.items()})


def test_a_full_disk_at_publication_fails_the_run_and_the_next_one_publishes_without_a_call(
    made: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = window(made)

    def full(_: Disk, file: BinaryIO) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Disk, "sync", full)
        failed = run(made.home, key)
    assert not failed.success
    assert "No space left on device" in complaint(failed) and "free space" in complaint(failed)
    assert failed.get_asset_materialization_events()[-1].asset_key == dg.AssetKey("run_plans"), "no evidence is claimed"
    assert run_state(made.home, key).counts == {"success": 12}, "what was accepted is in the journal"
    assert run(made.home, key).success
    assert made.inference_calls == (7, 7)


CLOSE_AGAIN = dg.define_asset_job("close_again", selection=dg.AssetSelection.assets("window_manifests"))
"""What the UI does where somebody materializes this asset alone: it publishes no part, and its check runs."""


@pytest.mark.parametrize("damage", ["corrupt", "delete"])
def test_a_damaged_part_fails_the_check_and_materializing_again_gives_the_same_bytes(made: World, damage: str) -> None:
    key = window(made)
    assert run(made.home, key).success
    [part] = (made.home.warehouse / "traces" / f"window_key={key}").glob("part-*.parquet")
    sound = part.read_bytes()
    if damage == "corrupt":
        part.write_bytes(sound[:300] + bytes([sound[300] ^ 1]) + sound[301:])
    else:
        part.unlink()
    extended = dg.Definitions.merge(defs, dg.Definitions(jobs=[CLOSE_AGAIN]))
    checked = run(made.home, key, extended.resolve_job_def("close_again"))
    [evaluation] = [
        each for each in checked.get_asset_check_evaluations() if each.asset_check_key.name == "journal_equals_parquet"
    ]
    assert not evaluation.passed and evaluation.severity is dg.AssetCheckSeverity.ERROR
    said = str(evaluation.metadata["parquet traces"].value)
    assert said.startswith("NOT SOUND") and "materialize the window's assets" in said, said
    assert run(made.home, key).success
    assert part.read_bytes() == sound
    assert made.inference_calls == (7, 7), "a part is derived from the journal, not from the servers"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, Served]]:
    folder = tmp_path_factory.mktemp("faults")
    with world(folder, cases=CASES, champion=SLOW, candidate=SLOW) as found:
        with dagster_ui(found.home.root, folder / "ui.log") as ui:
            yield found, ui


def begun(made: World, ui: Served, calls: int) -> tuple[str, str]:
    """A window whose run is sending: its key and the run's id."""
    before = sum(made.inference_calls)
    key = window(made)
    run_id = ui.launch("shadow_window", key)
    # the ledger of one server wakes us; both are counted
    wait_until(lambda: sum(made.inference_calls) >= before + calls or ui.status(run_id) in ("FAILURE", "SUCCESS"))
    assert ui.status(run_id) == "STARTED"
    return key, run_id


def let_go(home: Home, key: str) -> None:
    """Until no process holds the window's journal."""
    wait_until(lambda: held_by(OsFileSystem(), home.run(key)) is None)


def rows_by_state(home: Home, key: str) -> dict[str, int]:
    with connect(home.root) as session:
        query = "SELECT coalesce(status, dispatch_state), count(*) FROM traces WHERE window_key = ? GROUP BY ALL"
        return dict(session.execute(query, [key]).fetchall())


@pytest.mark.crash
def test_a_run_that_is_force_cancelled_while_sending_drains_and_a_new_run_finishes_it(
    served: tuple[World, Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, ui = served
    monkeypatch.setenv("TASC_HOME", str(made.home.root))
    earlier = by_case(made)
    key, first = begun(made, ui, 6)
    refused = run(made.home, key)
    assert not refused.success and "process" in complaint(refused), "the second run is refused and says who holds it"
    ui.force_cancel(first)
    assert ui.ended(first) == "CANCELED"
    let_go(made.home, key)
    counts = run_state(made.home, key).counts
    assert sum(counts.values()) == 2 * CASES and counts.get("pending", 0) > 0, "it stopped before the end"
    assert ui.ended(ui.launch("shadow_window", key)) == "SUCCESS"
    states = rows_by_state(made.home, key)
    assert sum(states.values()) == 2 * CASES
    assert states["success"] >= 2 * CASES - IN_FLIGHT
    assert max((by_case(made) - earlier).values()) == 1, "no case was sent twice"


@pytest.mark.crash
def test_a_failed_run_is_re_executed_from_failure_without_a_call(served: tuple[World, Served]) -> None:
    made, ui = served
    before = sum(made.inference_calls)
    key = window(made)
    traces, aside = made.home.warehouse / "traces", made.home.warehouse.parent / "aside"
    traces.rename(aside)
    traces.write_text("a file where a folder should be")
    failed = ui.launch("shadow_window", key)
    assert ui.ended(failed) == "FAILURE"
    sent = sum(made.inference_calls) - before
    assert sent == 2 * CASES + 2
    traces.unlink()
    aside.rename(traces)
    assert ui.ended(ui.reexecute_from_failure(failed)) == "SUCCESS"
    assert sum(made.inference_calls) - before == sent
    assert rows_by_state(made.home, key) == {"success": 2 * CASES}


@pytest.mark.crash
def test_daemon_and_code_server_killed_during_a_run_cost_no_answer(
    served: tuple[World, Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last test of the module: it leaves no Dagster behind."""
    made, ui = served
    monkeypatch.setenv("TASC_HOME", str(made.home.root))
    earlier = by_case(made)
    key, first = begun(made, ui, 6)
    killed = [*ui.processes("dagster._daemon"), *ui.processes("dagster", "code-server"), *ui.processes("api", "grpc")]
    assert len(killed) >= 2, "there are a daemon and a code server"
    for process in killed:
        process.kill()
    let_go(made.home, key)
    assert run(made.home, key).success
    states = rows_by_state(made.home, key)
    assert sum(states.values()) == 2 * CASES and states["success"] >= 2 * CASES - IN_FLIGHT
    assert max((by_case(made) - earlier).values()) == 1, "no case was sent twice"
    with instance_of(made.home) as instance:
        shown = instance.get_run_by_id(first)
    assert shown is not None and shown.tags["dagster/partition"] == key
