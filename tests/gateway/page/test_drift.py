"""The page, the overview and the metrics of a gateway one of whose models got worse."""

import pytest

from drift.logs import MODEL, records
from fedrouter.bundle import load


@pytest.fixture(scope="module")
def fallen(site, bundle):
    """An administrator's visit after the model fell, and what the view shows."""
    visitor = site.visitor()
    assert visitor.get("drift").json()["regions"] is None
    site.gateway.store.append(records(load(bundle), fall_on=10))
    assert visitor.post("drift/restart").status_code == 200
    return visitor, visitor.get("drift").json()


def test_the_view_shows_residuals_over_time_and_the_alarm(fallen):
    _, found = fallen
    assert found["alarms"][0]["model"] == MODEL
    assert found["alarms"][0]["region"] in found["regions"]
    assert all(len(each["over_time"]) == len(found["times"]) for each in found["series"])
    assert found["alarms"][0]["after"] < found["alarms"][0]["before"] - 0.3


def test_the_overview_has_an_alarm_with_what_to_do(fallen, site):
    visitor, _ = fallen
    (alarm,) = [each for each in visitor.get("overview").json()["alarms"] if "got worse" in each["title"]]
    assert MODEL in alarm["title"]
    assert "Learn again" in alarm["do"]
    plain = site.visitor(site.plain).get("overview").json()["alarms"]
    assert not [each for each in plain if "got worse" in each["title"]]


def test_the_metric_names_the_model_and_the_region(fallen, site):
    _, found = fallen
    text = site.gateway.http.get("/metrics").text
    (line,) = [each for each in text.splitlines() if each.startswith("fedrouter_drift{")]
    assert f'model="{MODEL}"' in line
    assert found["alarms"][0]["region"] in line
