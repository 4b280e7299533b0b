"""Whoever looks at the page does not wait for a large log to be read."""

import asyncio
import threading

import pytest

from fedrouter.errors import FedrouterError
from fedrouter.gateway.observe import drift_watch
from fedrouter.gateway.observe.drift_watch import DriftWatch


class NoBundle:
    current = None


async def until_read(watch):
    while await watch.look():
        pass


def test_a_look_does_not_wait_for_the_log_and_the_next_one_has_what_was_found(monkeypatch):
    go_on, answers = threading.Event(), iter([None, FedrouterError("the store is away")])

    def slow(store, bundle):
        assert go_on.wait(60)
        found = next(answers)
        if found is not None:
            raise found

    monkeypatch.setattr(drift_watch, "watch", slow)

    async def looking():
        watch = DriftWatch(None, NoBundle())
        assert await watch.look()
        assert await watch.look()  # still the same reading
        go_on.set()
        await until_read(watch)
        assert not await watch.look()  # what was read a moment ago is not read again
        watch._at = float("-inf")
        with pytest.raises(FedrouterError, match="away"):
            await until_read(watch)

    asyncio.run(looking())
