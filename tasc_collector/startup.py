"""How a process that only runs a command of ours begins; ``bench/collect/startup.py`` measures what it is worth.

Rules:

1. An entry point calls ``begin_process`` before it imports a module with records. No import calls it: a host such as
   Dagster keeps its own settings.
2. Loading modules makes a hundred thousand objects and no garbage. Python would search them for garbage a hundred times,
   and does so less often here, also while calls are timed.
3. pydantic hands what it reads to plugins that any installed package may register. Records are shown to none, and
   the installed packages are not searched for them. Who wants one sets the variable otherwise.
"""

from __future__ import annotations

import gc
from collections.abc import MutableMapping
from typing import Final

NEW_OBJECTS: Final = 10_000
"""New objects after which Python looks for garbage among them; 700 by default before Python 3.12."""
_PLUGINS: Final = "PYDANTIC_DISABLE_PLUGINS"


def begin_process(environ: MutableMapping[str, str]) -> None:
    """Rules 2 and 3.

    Args:
        environ: of this process, and of those that it starts.
    """
    gc.set_threshold(NEW_OBJECTS, 10, 10)
    environ.setdefault(_PLUGINS, "__all__")
