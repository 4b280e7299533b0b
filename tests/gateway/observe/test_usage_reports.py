"""Usage reports: as many as are asked for, but the log is read once at a time and no more often than it takes."""

import asyncio
import threading
import time

from fedrouter.gateway.observe.usage_reports import UsageReports
from fedrouter.store.store import Store
from gateway.running import SQL, config_for


class SlowStore:
    """Counts the reports it makes, and makes no two at once."""

    def __init__(self) -> None:
        self.made, self._busy = 0, threading.Lock()

    def usage(self, by, since, key):
        assert self._busy.acquire(blocking=False), "two at once"
        time.sleep(0.1)
        self.made += 1
        self._busy.release()
        return [(by, since, key)]


def test_a_report_is_made_once_for_many_and_one_at_a_time():
    store = SlowStore()

    async def main():
        reports = UsageReports(store)
        same = await asyncio.gather(*(reports.get("day", 0.0, "a") for _ in range(50)))
        assert same == [[("day", 0.0, "a")]] * 50
        assert store.made == 1
        assert await asyncio.gather(reports.get("day", 0.0, "b"), reports.get("day", 1.0, None)) == [
            [("day", 0.0, "b")],
            [("day", 1.0, None)],
        ]

    asyncio.run(main())
    assert store.made == 3


def test_usage_has_a_rate_of_its_own(start, bundle, upstream, tmp_path, monkeypatch):
    monkeypatch.setattr("fedrouter.gateway.routes.usage.PER_MINUTE", 3)
    gateway = start(config_for(tmp_path, bundle, upstream.url))
    gateway.chat(SQL)
    statuses = [gateway.http.get("/v1/usage").status_code for _ in range(4)]
    assert statuses == [200, 200, 200, 429]
    assert gateway.chat(SQL).status_code == 200


def test_readiness_asks_the_store_nothing(start, bundle, upstream, tmp_path, monkeypatch):
    gateway = start(config_for(tmp_path, bundle, upstream.url))
    asked, reading = [], Store.reading
    monkeypatch.setattr(Store, "reading", lambda store: asked.append(store) or reading(store))
    for _ in range(60):
        found = gateway.http.get("/health/ready")
        assert (found.status_code, found.json()["status"]) == (200, "ready")
    assert len(asked) < 30  # others look for another bundle every two seconds
