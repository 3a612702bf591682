"""What assets are given: where the state folder is. Inert: it reads no key, opens nothing and touches no network.

Dagster sets resources up more often than a step runs, and shows their values in the UI; so a resource holds a path, and
secrets are read by name, at dispatch, inside the collector.
"""

from pathlib import Path

import dagster as dg

from tasc_pipeline.home import Home, default_home


class StateFolder(dg.ConfigurableResource):  # type: ignore[type-arg]  # generic over the yielded type, which is itself
    """The state folder; empty means the one that the environment names."""

    root: str = ""

    def home(self) -> Home:
        """The folder, checked."""
        home = Home(Path(self.root).absolute()) if self.root else default_home()
        home.check()
        return home
