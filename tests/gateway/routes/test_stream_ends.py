"""A stream whose handler fails leaves no connection to its upstream behind."""

import asyncio
from types import SimpleNamespace

import pytest

from fedrouter.gateway.routes.chat import Exchange
from fedrouter.store.engine import StoreFailed


@pytest.mark.parametrize("error", [StoreFailed("locked"), asyncio.CancelledError()])
def test_an_exchange_that_fails_in_the_middle_of_a_stream_closes_its_connection(error):
    ended = []
    response = SimpleNamespace(close=lambda: ended.append("closed"))
    found = SimpleNamespace(response=response, content=response, release=lambda: ended.append("not in progress"))

    class Failing(Exchange):
        async def _called(self, spliced):
            return found

        async def _stream(self, *_):
            raise error

    context = SimpleNamespace(interrupted=object())
    with pytest.raises(type(error)):
        asyncio.run(Failing(None, context, None, False, None).run(None))
    assert ended == ["closed", "not in progress"]
