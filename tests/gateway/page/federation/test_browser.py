"""The federation in a real browser: a coordinator's grid, and a client's audit."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from gateway.page.federation.conftest import KEY, NAMES
from gateway.page.windows import Windows, serious, sign_in


@pytest.fixture
def opened(chromium, serve_directory):
    @contextmanager
    def opening(directory, **options):
        """The page of a state directory, signed in."""
        with Windows(chromium, serve_directory(directory)).new(**options) as page:
            sign_in(page, KEY)
            page.get_by_role("heading", name="Federation").wait_for()
            yield page

    return opening


def test_a_coordinators_grid_is_shown(opened, directories):
    with opened(directories[0]) as page:
        grid = page.get_by_role("region", name="Members and rounds")
        for name in NAMES:
            grid.get_by_role("rowheader", name=name).wait_for()
        assert grid.locator("td.round.bad").count() >= 1
        page.get_by_role("region", name="Rows by region and model").wait_for()
        assert not serious(page)


def test_a_clients_messages_can_be_opened_also_on_a_phone(opened, directories):
    with opened(directories[1], viewport={"width": 390, "height": 800}) as page:
        page.get_by_role("button", name="Show sent").first.click()
        page.get_by_role("dialog").get_by_text("Message").first.wait_for()
        page.keyboard.press("Escape")
        page.get_by_role("dialog").wait_for(state="detached")
        assert not serious(page)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
