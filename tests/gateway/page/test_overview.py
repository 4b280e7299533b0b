"""How often an overview is added up: at every look, unless that would take too large a share of the time."""

import time

import pytest

from fedrouter.gateway.page import overview


class Anything:
    """Stands in for a gateway and for a visit of the administrator."""

    own = None


@pytest.mark.parametrize(("seconds", "sums"), [(0.0, 3), (2 * overview.QUICK, 1)])
def test_what_takes_long_to_add_up_is_shown_for_longer(monkeypatch, seconds, sums):
    made = []

    def adding(gateway, visit, hours):
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            pass
        made.append(hours)
        return {"requests": len(made)}

    monkeypatch.setattr(overview, "_overview", adding)
    monkeypatch.setattr(overview, "SHARE", 1e-6)
    gateway, visit = Anything(), Anything()
    found = [overview.current(gateway, visit, 24) for _ in range(3)]
    assert len(made) == found[-1]["requests"] == sums
    assert found[0]["age"] == 0 <= found[-1]["age"]
    overview.current(gateway, visit, 1)  # another period is another sum
    assert made[-1] == 1
