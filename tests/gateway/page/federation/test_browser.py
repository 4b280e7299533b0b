"""The federation in a real browser: a coordinator's grid, and a client's audit."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from gateway.page.federation.conftest import KEY, NAMES

pytestmark = pytest.mark.slow
AXE = (Path(__file__).parents[1] / "axe" / "axe.min.js").read_text()


@pytest.fixture
def opened(chromium, serve_directory, directories):
    """Opens the page of a directory, signed in; console errors and requests to other hosts fail the test."""
    wrong, contexts = [], []

    def opening(index, **options):
        url = serve_directory(directories[index])
        context = chromium.new_context(**{"viewport": {"width": 1280, "height": 900}} | options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(15_000)
        host = urlsplit(url).netloc
        page.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda sent: wrong.append(sent.url) if urlsplit(sent.url).netloc not in (host, "") else None)
        page.goto(url)
        page.get_by_label("API key").fill(KEY)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("heading", name="Federation").wait_for()
        return page

    yield opening
    for context in contexts:
        context.close()
    assert not wrong


def serious(page):
    page.evaluate(AXE)
    found = page.evaluate("axe.run()")["violations"]
    return [each["id"] for each in found if each["impact"] in ("serious", "critical")]


def test_a_coordinators_grid_is_shown(opened):
    page = opened(0)
    grid = page.get_by_role("region", name="Members and rounds")
    for name in NAMES:
        grid.get_by_role("rowheader", name=name).wait_for()
    assert grid.locator("td.round.bad").count() >= 1
    page.get_by_role("region", name="Rows by region and model").wait_for()
    assert not serious(page)


def test_a_clients_messages_can_be_opened_also_on_a_phone(opened):
    page = opened(1, viewport={"width": 390, "height": 800})
    page.get_by_role("button", name="Show sent").first.click()
    page.get_by_role("dialog").get_by_text("Message").first.wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="detached")
    assert not serious(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
