"""A person's way through the UI: the asset graph, a sealed window materialized, its run, its report, its checks.

Everything is real: `tasc ui` (web server, daemon, code server), two contract servers, Debian's Chromium. Each wait is for
something that the page shows. Screenshots are left in ``build/ui``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tasc_pipeline.home.windows import WindowFolder
from tasc_pipeline.instance import add_partition
from tasc_pipeline.steps.assess import report_path
from tests.support import browser
from tests.support.dagster_ui import PATIENCE_S, dagster_ui
from tests.support.window import World, world

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.ui
GROUPS = {
    "authority": ("run_plans", "runtime_endpoints"),
    "evidence": ("accepted_traces", "device_snapshots", "metric_samples", "window_manifests"),
    "decision": ("assessments", "window_catalogue"),
    "compute": ("engine_instances",),
}


@dataclass(frozen=True)
class Opened:
    """A browser's page on the UI of a state folder with one approved window."""

    page: Page
    url: str
    made: World
    key: str

    def shot(self, name: str) -> None:
        browser.SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=browser.SCREENSHOTS / f"{name}.png")

    def materialize(self, job: str) -> str:
        """Materialize the window's partition of a job, as a person does, and wait for the end of its run: its status."""
        page = self.page
        page.goto(f"{self.url}/locations/tasc/jobs/{job}")
        page.get_by_role("button", name="Materialize").first.click()
        page.get_by_text("Select a partition or create one").click()
        page.get_by_role("menuitem").filter(has_text=self.key).click()
        page.get_by_text("1 partition", exact=False).first.wait_for()
        self.shot(f"{job}-partition")
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Launch 1 run").click()
        page.get_by_text("Launched run").wait_for()
        page.get_by_text("View", exact=True).first.click()
        page.wait_for_url("**/runs/*")
        ended = page.get_by_text("Success", exact=True).or_(page.get_by_text("Failure", exact=True)).first
        ended.wait_for()
        self.shot(f"{job}-run")
        return ended.inner_text()


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    if (reason := browser.missing()) is not None:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("ui")
    with world(folder) as made, browser.browser() as chromium:
        key = made.approved_window()
        add_partition(made.home, key)
        with dagster_ui(made.home.root, folder / "ui.log") as served:
            page = chromium.new_page(viewport={"width": 1400, "height": 900})
            page.set_default_timeout(PATIENCE_S * 1000)
            yield Opened(page, served.url, made, key)


@pytest.fixture(scope="module")
def collected(opened: Opened) -> str:
    """The status of the run that the UI launched for the window."""
    return opened.materialize("shadow_window")


@pytest.fixture(scope="module")
def assessed(opened: Opened, collected: str) -> str:
    """The status of the run that assessed it."""
    assert collected == "Success"
    return opened.materialize("assess_window")


def test_the_graph_shows_every_asset_in_its_group(opened: Opened) -> None:
    groups = ",".join(f"global@global:{group}" for group in GROUPS)
    opened.page.goto(f"{opened.url}/asset-groups?expanded={groups}")
    for group, assets in GROUPS.items():
        opened.page.get_by_text(group, exact=True).last.wait_for()
        for asset in assets:
            opened.page.get_by_text(asset, exact=True).last.wait_for()
    opened.shot("assets")
    assert opened.page.get_by_text("Materialize all").first.is_visible()


def test_a_sealed_window_is_materialized_and_its_run_succeeds(opened: Opened, collected: str) -> None:
    assert collected == "Success"
    assert opened.made.inference_calls == (7, 7), "six cases and one warm-up call for each server"
    link = WindowFolder(opened.made.home, opened.key).path / "link.json"
    assert link.is_file(), "the window is closed"


def test_the_checks_of_the_window_are_shown_as_passed(opened: Opened, collected: str) -> None:
    assert collected == "Success"
    for asset, check, said in (
        ("window_manifests", "signatures_verify", "12 planned = 12 accepted + 0 not sent + 0 not attempted"),
        ("window_manifests", "journal_equals_parquet", "12 rows, equal to the journal"),
        ("accepted_traces", "coverage_floor", "limit"),
    ):
        opened.page.goto(f"{opened.url}/assets/{asset}?view=checks&checkDetail={check}")
        opened.page.get_by_text("Evaluation result").wait_for()
        opened.page.get_by_text(said, exact=False).first.wait_for()
        opened.shot(f"check-{check}")
        assert opened.page.get_by_text("Passed", exact=True).first.is_visible()
        assert opened.page.get_by_text(opened.key, exact=False).count()


def test_the_report_stands_in_the_metadata_of_the_assessment(opened: Opened, assessed: str) -> None:
    assert assessed == "Success"
    report = WindowFolder(opened.made.home, opened.key).report().record
    sentence = report.comparisons[0].sentence
    page = opened.page
    page.goto(f"{opened.url}/assets/assessments?view=partitions&partition={opened.key}")
    page.get_by_text(sentence[:60], exact=False).first.wait_for()
    opened.shot("assessment")
    page.get_by_text("[Show Markdown]").first.click()
    page.get_by_text("What is missing or needs care").wait_for()
    pictures = page.locator("img[src^='data:image/svg+xml']")
    pictures.first.wait_for()
    opened.shot("report-in-dagster")
    assert pictures.count() >= 4, "distributions, intervals, pairs, outcomes, time"
    widths = pictures.evaluate_all("all => all.map(each => each.naturalWidth)")
    assert min(widths) > 100, "every picture was drawn"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_report_page_fits_a_screen_of_1280_in_light_and_dark(opened: Opened, assessed: str, scheme: str) -> None:
    assert assessed == "Success"
    browser_of_page = opened.page.context.browser
    assert browser_of_page is not None
    page = browser_of_page.new_page(viewport={"width": 1280, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]  # one of two words
    try:
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        address = report_path(opened.made.home, opened.key).as_uri()
        page.goto(address)
        page.screenshot(path=browser.SCREENSHOTS / f"report-{scheme}.png", full_page=True)
        wide, background, ink = page.evaluate(
            "[document.documentElement.scrollWidth, getComputedStyle(document.body).backgroundColor,"
            " getComputedStyle(document.body).color]"
        )
        assert wide <= 1280, "nothing is cut off and nothing scrolls sideways"
        assert (brightness(background) > brightness(ink)) == (scheme == "light")
        assert asked == [address], "the page asks nothing of anyone"
    finally:
        page.close()


def brightness(colour: str) -> int:
    """Of ``rgb(r, g, b)``: 0 to 765."""
    return sum(int(part) for part in colour[colour.index("(") + 1 : -1].split(","))
