"""Write the golden files anew: ``python -m tests.compute.golden.make`` in the project's folder. Read the difference."""

from __future__ import annotations

import json
from pathlib import Path

from tasc_compute.contracts import EngineId
from tests.support.plan_cases import golden


def main() -> None:
    for engine in EngineId:
        text = json.dumps(golden(engine), indent=1) + "\n"
        Path(__file__).with_name(f"{engine}.json").write_text(text)


if __name__ == "__main__":
    main()
