"""The page, the overview and the metrics of a gateway one of whose models got worse."""

import pytest

from fedrouter.gateway.observe import drift_watch
from gateway.running import eventually
from learning.logs import MODEL, fallen


@pytest.fixture(scope="module")
def visited(site):
    """An administrator's visit after the model fell, and what the view shows."""
    visitor = site.visitor()
    assert visitor.get("drift").json()["cells"] is None
    site.gateway.store.append(fallen())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drift_watch, "FRESH", 0.0)
        eventually(lambda: visitor.get("drift").json()["cells"], 60)
    return visitor, visitor.get("drift").json()


def test_the_view_shows_scores_by_day_and_the_alarm(visited):
    _, found = visited
    (cell,) = found["cells"]
    assert (cell["model"], cell["alarm"]) == (MODEL, True)
    assert cell["score"] < cell["expected"] - 0.1
    assert len(found["days"]) == 20


def test_the_overview_has_an_alarm_and_the_metric_names_the_model(visited, site):
    visitor, _ = visited
    (alarm,) = [each for each in visitor.get("overview").json()["alarms"] if "got worse" in each["title"]]
    assert MODEL in alarm["title"]
    plain = site.visitor(site.plain).get("overview").json()["alarms"]
    assert not [each for each in plain if "got worse" in each["title"]]
    assert f'fedrouter_drift{{model="{MODEL}"}}' in site.gateway.http.get("/metrics").text
