"""What tests of the pipeline share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def undrawn() -> Iterator[None]:
    """Charts are built and not drawn, which is most of an assessment's time: for modules that look at no picture.

    Pictures are checked in ``warehouse/test_report.py``, pages of whole windows in ``steps/test_window_life.py``.
    """
    from tasc_pipeline.warehouse import charts

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(charts, "_svg", lambda figure: '<svg width="1px" height="1px"></svg>')
        yield
