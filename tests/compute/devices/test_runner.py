"""The tool runner ends what it starts, whatever it does (gpu-monitoring-tools 46, gpud pull 117, amdsmi 168)."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tasc_compute.devices import runner as module
from tasc_compute.devices.runner import ToolRunner, ToolStatus
from tasc_compute.limits import TOOL_MAX_BYTES


def program(folder: Path, name: str, body: str) -> None:
    path = folder / name
    path.write_text(f"#!{sys.executable} -IS\n{body}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def runner_of(folder: Path, **bounds: int) -> ToolRunner:
    return ToolRunner({"PATH": str(folder), "HOME": "/nowhere", "SECRET_TOKEN": "x"}, extra_path=(), **bounds)


def ended(pid: int) -> bool:
    """A killed orphan is reaped by init in its own time; a zombie holds nothing."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state in "ZX":
            return True
        time.sleep(0.02)
    return False


def test_an_answer_keeps_its_exit_code_and_drops_standard_error(bin_folder: Path) -> None:
    program(bin_folder, "t", "import sys; sys.stdout.write('yes'); sys.stderr.write('warning'); sys.exit(14)")
    answer = runner_of(bin_folder).run("t")
    assert (answer.status, answer.exit_code, answer.output) == (ToolStatus.ANSWERED, 14, "yes")


def test_a_tool_sees_a_chosen_environment_in_the_c_locale_and_no_input(bin_folder: Path) -> None:
    program(
        bin_folder,
        "t",
        "import os, sys; print(sorted(os.environ.items()), sys.stdin.read() == '', os.getsid(0) == os.getpid())",
    )
    expected = [("HOME", "/nowhere"), ("LANG", "C"), ("LC_ALL", "C"), ("PATH", str(bin_folder))]
    got = runner_of(bin_folder).run("t").output
    assert "SECRET_TOKEN" not in got
    assert [item for item in expected if str(item) not in got] == [] and got.strip().endswith("True True")


def test_a_missing_tool_is_missing_and_not_a_fault(bin_folder: Path) -> None:
    assert runner_of(bin_folder).run("nvidia-smi").status is ToolStatus.MISSING
    assert not runner_of(bin_folder).has("nvidia-smi")


def test_a_tool_that_cannot_be_executed_is_said_to_be_so(bin_folder: Path) -> None:
    path = bin_folder / "t"
    path.write_text("#!/nowhere/interpreter\n")
    path.chmod(0o700)
    assert runner_of(bin_folder).run("t").status is ToolStatus.NOT_STARTED


def test_a_hanging_tool_that_ignores_term_is_killed_with_its_children(bin_folder: Path, tmp_path: Path) -> None:
    """Lesson 46: a lost GPU wedges nvidia-smi, which must hold up nobody."""
    pids = tmp_path / "pids"
    program(
        bin_folder,
        "t",
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = os.fork()\n"
        f"if child: open({str(pids) + '.new'!r}, 'w').write(f'{{os.getpid()}} {{child}}')\n"
        f"if child: os.rename({str(pids) + '.new'!r}, {str(pids)!r})\n"
        "time.sleep(600)\n",
    )
    # the bound leaves a loaded machine time to start the interpreter; the tool itself would sleep ten minutes
    answer = runner_of(bin_folder, timeout_ms=6000).run("t")
    assert (answer.status, answer.exit_code, answer.output) == (ToolStatus.TIMED_OUT, None, "")
    assert all(ended(int(pid)) for pid in pids.read_text().split())


def test_output_beyond_the_bound_ends_the_tool(bin_folder: Path) -> None:
    program(bin_folder, "t", "import sys\nwhile True: sys.stdout.write('x' * 65536)")
    answer = runner_of(bin_folder, timeout_ms=120_000, budget_ms=120_000).run("t")
    assert (answer.status, answer.output) == (ToolStatus.TOO_LARGE, "")
    assert TOOL_MAX_BYTES == 4 * 1024 * 1024


def test_tools_of_one_runner_share_a_budget(bin_folder: Path) -> None:
    program(bin_folder, "t", "print('never')")
    assert runner_of(bin_folder, budget_ms=0).run("t").status is ToolStatus.TIMED_OUT


def test_a_tool_that_sits_in_a_driver_is_not_started_again_until_it_ended(bin_folder: Path) -> None:
    """No process can be put into state D here, so a live one stands in its place."""
    program(bin_folder, "t", "print('fine')")
    with subprocess.Popen([sys.executable, "-IS", "-c", "input()"], stdin=subprocess.PIPE) as stuck:
        module._WEDGED[str(bin_folder / "t")] = stuck
        assert runner_of(bin_folder).run("t").status is ToolStatus.WEDGED
        os.kill(stuck.pid, signal.SIGKILL)
        stuck.wait(30)
    assert runner_of(bin_folder).run("t").output == "fine\n"
    assert str(bin_folder / "t") not in module._WEDGED


def test_bytes_that_are_no_text_do_not_break_an_answer(bin_folder: Path) -> None:
    program(bin_folder, "t", "import sys; sys.stdout.buffer.write(b'a\\xff\\xfeb')")
    assert runner_of(bin_folder).run("t").output == "a\ufffd\ufffdb"


@pytest.mark.parametrize("count", [20])
def test_runs_leave_no_descriptor_open(bin_folder: Path, count: int) -> None:
    program(bin_folder, "t", "print(1)")
    tools = runner_of(bin_folder, budget_ms=300_000)
    tools.run("t")
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert all(tools.run("t").answered for _ in range(count))
    assert len(list(Path("/proc/self/fd").iterdir())) == before
