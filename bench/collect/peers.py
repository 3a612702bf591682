"""Commands of peers that make the same calls against the bench's own mock server, for ``burst.py``.

A peer is given as the path of a Python interpreter that has it installed, never the project's own: peers pin many packages.

Both need a tokenizer, which must not come from the network: ``TOY_TOKENIZER`` writes one with one token per character, with
the peer's own libraries. Token counts are the server's in what is compared, so it bends nothing.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

MODEL = "org/model"
TOY_TOKENIZER = """
import sys
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
toy = Tokenizer(models.BPE({letter: index for index, letter in enumerate([*alphabet, "<s>"])}, []))
toy.pre_tokenizer, toy.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
PreTrainedTokenizerFast(tokenizer_object=toy, bos_token="<s>", eos_token="<s>", unk_token="<s>").save_pretrained(sys.argv[1])
"""


class Load(NamedTuple):
    """What every program is asked to do."""

    url: str
    calls: int
    concurrency: int
    tokens: int


def _aiperf(python: Path, load: Load, folder: Path) -> list[str]:
    return [
        *(str(python.parent / "aiperf"), "profile", "--model", MODEL, "--url", load.url),
        *("--endpoint-type", "completions", "--streaming", "--use-server-token-count"),
        *("--concurrency", str(load.concurrency), "--request-count", str(load.calls), "--workers-max", "1"),
        *("--synthetic-input-tokens-mean", "64", "--output-tokens-mean", str(load.tokens)),
        *("--tokenizer", str(folder / "tokenizer"), "--output-artifact-dir", str(folder / "out"), "--ui", "none"),
    ]


def _guidellm(python: Path, load: Load, folder: Path) -> list[str]:
    backend = f"kind=openai_http,target={load.url},model={MODEL},request_format=/v1/completions"
    return [
        *("env", "GUIDELLM__MAX_WORKER_PROCESSES=1", str(python.parent / "guidellm"), "run", "--disable-console"),
        *("--backend", backend, "--tokenizer", f"kind=huggingface_auto,model={folder / 'tokenizer'}"),
        *("--profile", f"kind=concurrent,streams={load.concurrency}"),
        *("--constraint", f"kind=max_requests,count={load.calls}"),
        *("--data", f"kind=synthetic_text,prompt_tokens=64,output_tokens={load.tokens}"),
        *("--output", f"kind=json,path={folder / 'guidellm.json'}"),
    ]


PEERS: Mapping[str, Callable[[Path, Load, Path], list[str]]] = {"aiperf": _aiperf, "guidellm": _guidellm}


def is_installed(name: str, python: Path | None) -> bool:
    """Whether this interpreter has the peer."""
    if python is None or not python.exists():
        return False
    return subprocess.run([str(python), "-c", f"import {name}"], capture_output=True, check=False).returncode == 0


def write_tokenizer(python: Path, folder: Path) -> None:
    """The toy tokenizer, in ``folder/tokenizer``."""
    subprocess.run([str(python), "-c", TOY_TOKENIZER, str(folder / "tokenizer")], check=True)
