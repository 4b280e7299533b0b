"""The page in a real browser."""

from __future__ import annotations

import pytest

from gateway.page.conftest import sign_in
from gateway.running import SQL


def test_sign_in_shows_the_overview_and_sign_out_hides_it(page, site):
    site.gateway.chat(SQL)
    sign_in(page, site.url, site.gateway.key)
    page.get_by_text("Saved against atlas-max").wait_for()
    page.get_by_text("Requests by model").wait_for()
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("API key").wait_for()


def test_a_wrong_key_is_refused_with_a_reason(page, site):
    page.goto(site.url)
    page.get_by_label("API key").fill("fr-wrong")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("alert").get_by_text("unknown, disabled or expired").wait_for()
    page.wrong[:] = [said for said in page.wrong if "401" not in said]  # browsers report every failed request


@pytest.mark.parametrize("page", [{"viewport": {"width": 375, "height": 740}}], indirect=True)
def test_nothing_is_wider_than_a_phone(page, site):
    site.gateway.chat(SQL)
    sign_in(page, site.url, site.gateway.key)
    for name in page.get_by_role("navigation").get_by_role("listitem").all_inner_texts():
        page.get_by_role("link", name=name, exact=True).click()
        page.get_by_role("heading", name=name).wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 375, name


def test_a_request_of_another_client_appears_without_reloading(admin, site):
    admin.get_by_role("link", name="Decisions").click()
    admin.get_by_role("heading", name="Decisions").wait_for()
    site.gateway.chat("A prompt that was never sent before.")
    admin.get_by_text("A prompt that was never sent before.").wait_for()


def test_decisions_are_filtered_opened_scored_and_replayed(admin, site):
    named = site.gateway.chat("Named on purpose.", model="indigo-nano").headers["x-fedrouter-decision-id"]
    site.gateway.chat("Routed by the router.")
    admin.goto(site.url + "/#/decisions")
    admin.get_by_text("Routed by the router.").first.wait_for()
    admin.get_by_label("Reason").select_option("named")
    admin.get_by_text("Routed by the router.").first.wait_for(state="detached")
    admin.get_by_text("Named on purpose.").first.click()
    dialog = admin.get_by_role("dialog")
    dialog.get_by_text(named).wait_for()
    dialog.get_by_role("button", name="Good").click()
    dialog.get_by_role("heading", name="Scores").wait_for()
    assert site.gateway.store.get(named).score == 1.0
    dialog.get_by_role("button", name="Replay").click()
    dialog.get_by_text("would choose").wait_for()
    admin.keyboard.press("Escape")
    dialog.wait_for(state="detached")
