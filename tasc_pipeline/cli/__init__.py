"""``tasc``: the command line. It formats; what it does is in ``steps`` and the packages below.

Exit codes: 0 done, 1 a run failed, 2 the command's own words are wrong, 3 an input was refused, 4 an output could not be
written, 130 interrupted. Results go to standard output, everything else to standard error.
"""

from tasc_pipeline.cli.app import main

__all__ = ["main"]
