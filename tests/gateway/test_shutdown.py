"""A gateway that is told to stop: requests have time to end; those that do not are told so, and have their row."""

import threading
import time

import pytest

from gateway.running import QUICK, SQL, config_for, events, eventually

PATIENT = QUICK.replace(answer=50)


@pytest.fixture
def stopping(start, bundle, upstream, tmp_path):
    """A gateway that gives requests a second to end."""
    behaviors = {"atlas-max": "endless", "atlas-mini": "drip", "ember-med": "hang"}
    config = config_for(tmp_path, bundle, upstream.url, behaviors, timing=PATIENT)
    upstream.forget()
    return start(config.replace(server=config.server.replace(drain=1)))


def test_requests_end_or_are_told_why_they_do_not_and_each_has_its_row(stopping, upstream):
    found = {}

    def ask(name, **more):
        found[name] = stopping.chat(SQL, model=name, **more)

    asked = (("atlas-max", True), ("atlas-mini", True), ("ember-med", False))
    threads = [threading.Thread(target=ask, args=(name,), kwargs={"stream": streamed}) for name, streamed in asked]
    for thread in threads:
        thread.start()
    assert eventually(lambda: set(upstream.asked) == {"endless", "drip", "hang"})
    stopping.app.stop()
    begun = time.monotonic()
    for thread in threads:
        thread.join(30)
    assert time.monotonic() - begun < 20  # the upstreams would have taken longer
    assert found["atlas-mini"].text.rstrip().endswith("[DONE]")
    *said, last = events(found["atlas-max"])
    assert said
    assert last["error"]["code"] == "shutdown"
    assert "[DONE]" not in found["atlas-max"].text
    assert (found["ember-med"].status_code, found["ember-med"].json()["error"]["code"]) == (503, "shutdown")
    rows = {name: stopping.record(response) for name, response in found.items()}
    assert {name: row.status for name, row in rows.items()} == {
        "atlas-max": "shutdown",
        "atlas-mini": "ok",
        "ember-med": "shutdown",
    }
    assert rows["atlas-max"].cost > 0  # what was reserved, because the usage never came
