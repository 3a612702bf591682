"""The README's ten minutes, as a new user would type them: two servers of one's own, prompts as text lines."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tasc_collector.contract_servers import ContractServer
from tests.support.window import QUICK

ROOT = Path(__file__).resolve().parents[3]


def tasc(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `tasc` in a folder, without a variable of ours: the state folder is `.tasc` there."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TASC_", "DAGSTER_"))}
    return subprocess.run(
        [sys.executable, "-c", "from tasc_pipeline.cli import main; main()", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**environment, "PYTHONPATH": str(ROOT), "COLUMNS": "200"},
    )


def done(ran: subprocess.CompletedProcess[str]) -> str:
    """Everything that was printed by a command that succeeded."""
    assert ran.returncode == 0, ran.stderr
    assert "Traceback" not in ran.stderr
    return ran.stdout + ran.stderr


def test_ten_minutes_from_two_origins_to_a_verdict(tmp_path: Path) -> None:
    (tmp_path / "prompts.txt").write_text("Say one.\nSay two.\nSay three.\n")
    with ContractServer("vllm", behaviour=QUICK) as champion, ContractServer("llama.cpp", behaviour=QUICK) as candidate:
        done(tasc(tmp_path, "init"))
        made = done(
            tasc(
                tmp_path, "study", "new", "--study", "first", "--champion", champion.origin, "--candidate", candidate.origin,
                "--prompts", "prompts.txt",
            )
        )  # fmt: skip
        assert "observed" in made and "unknown" in made, "every value says where it comes from"
        assert "about 0.16 minutes (assuming 20 tokens/s), no cost model" in made
        assert champion.ledger.inference_calls == candidate.ledger.inference_calls == 0
        sealed = re.search(r"first\.\S+\.r01-[0-9a-f]{8}", done(tasc(tmp_path, "seal", "first")))
        assert sealed is not None
        key = sealed[0]
        told = done(tasc(tmp_path, "plan", key, "--dry-run"))
        assert "calls" in told and "output tokens" in told
        assert not (tmp_path / ".tasc" / "windows" / key / "plan.json").exists()
        digest = re.search(r"sha256:[0-9a-f]{64}", done(tasc(tmp_path, "plan", key)))
        assert digest is not None
        done(tasc(tmp_path, "plan", "approve", key, digest[0]))
        done(tasc(tmp_path, "collect", key))
        verdict = done(tasc(tmp_path, "assess", key))
        assert "candidate" in verdict and "champion" in verdict and "pairs" in verdict
        assert key in done(tasc(tmp_path, "status"))
        counted = done(
            tasc(tmp_path, "sql", "SELECT count(*) AS n FROM traces WHERE status = 'success'", "--csv")
        ).split()
        assert counted == ["n", "12"], "3 cases, 2 replicates, 2 servers"
        assert champion.ledger.inference_calls == candidate.ledger.inference_calls == 6 + 2, "two warm-up calls"
        done(tasc(tmp_path, "verify", key))


def test_a_chat_study_is_written_and_names_the_probes_that_will_admit_it(tmp_path: Path) -> None:
    (tmp_path / "prompts.txt").write_text("Say one.\n")
    with ContractServer("vllm", behaviour=QUICK) as champion, ContractServer("vllm", behaviour=QUICK) as candidate:
        done(tasc(tmp_path, "init"))
        made = done(
            tasc(
                tmp_path, "study", "new", "--study", "chat", "--champion", champion.origin, "--candidate", candidate.origin,
                "--prompts", "prompts.txt", "--route", "chatCompletions",
            )
        )  # fmt: skip
        probes = re.findall(r"tasc probe (\S+) (\S+) --effect inference-canary", made)
        assert {alias.rpartition("/")[2] for alias, _ in probes} == {"champion", "candidate"}
        sealed = re.search(r"chat\.\S+\.r01-[0-9a-f]{8}", done(tasc(tmp_path, "seal", "chat")))
        assert sealed is not None
        told = done(tasc(tmp_path, "plan", sealed[0], "--dry-run"))
        assert "4 calls" in told and "the plan needs a receipt first; run: tasc probe" in told
        refused = tasc(tmp_path, "plan", sealed[0])
        assert refused.returncode == 3 and "tasc probe" in refused.stderr
        for alias, capability in dict.fromkeys(probes):
            done(tasc(tmp_path, "probe", alias, capability, "--effect", "inference-canary"))
        digest = re.search(r"sha256:[0-9a-f]{64}", done(tasc(tmp_path, "plan", sealed[0])))
        assert digest is not None
