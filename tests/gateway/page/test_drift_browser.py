"""The drift view in a real browser: an alarm reads the same in every time zone, and regions' names stay text."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from drift.logs import records
from fedrouter.bundle import load
from gateway.page.conftest import sign_in

HOSTILE = "<img src=x onerror=window.hacked=1>"
FAR = [{"timezone_id": "America/Los_Angeles"}, {"timezone_id": "Pacific/Auckland"}]


@pytest.fixture(scope="module")
def alarm(site, bundle):
    """An alarm in a region whose task label is HTML."""
    rows = records(load(bundle), fall_on=10)
    site.gateway.store.append([replace(row, task=HOSTILE if row.task == rows[0].task else row.task) for row in rows])
    visitor = site.visitor()
    assert visitor.post("drift/restart").status_code == 200
    return visitor.get("drift").json()["alarms"][0]


@pytest.mark.slow
@pytest.mark.parametrize("page", FAR, indirect=True)
def test_an_alarm_names_model_region_and_day(page, site, alarm):
    began = datetime.fromtimestamp(alarm["began"], UTC)
    title = f"{alarm['model']} got worse at {alarm['region']} on {began:%A, %B} {began.day}"
    sign_in(page, site.url, site.gateway.key)
    page.get_by_text(title).wait_for()
    page.goto(f"{site.url}/#/drift")
    page.get_by_role("heading", name="Drift").wait_for()
    page.get_by_text(title).wait_for()
    page.get_by_text("got worse", exact=True).wait_for()
    assert page.evaluate("window.hacked") is None
    assert page.evaluate("document.querySelectorAll('main img').length") == 0
