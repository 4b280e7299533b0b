"""The cache of keys: what strangers send pushes out no key, and takes a bounded amount of memory."""

import asyncio

import pytest

from fedrouter.gateway import access
from fedrouter.gateway.access import Authenticator
from fedrouter.gateway.http import HttpError, HttpRequest
from fedrouter.store.store import Store


async def receive():
    return {"type": "http.disconnect"}


def with_token(token) -> HttpRequest:
    headers = [(b"authorization", f"Bearer {token}".encode())]
    return HttpRequest({"method": "GET", "path": "/", "query_string": b"", "headers": headers}, receive)


def test_invented_tokens_push_out_no_key_and_are_not_looked_up_twice(tmp_path, monkeypatch):
    monkeypatch.setattr(access, "MAX_CACHED", 8)
    looked_up = []

    async def strangers_and_a_key(store: Store, token: str) -> None:
        authenticator = Authenticator(store, True)
        assert (await authenticator.authenticate(with_token(token))).name == "app"
        for number in [*range(30), 29]:
            with pytest.raises(HttpError, match="unknown"):
                await authenticator.authenticate(with_token(f"fr-invented-{number}"))
        assert (await authenticator.authenticate(with_token(token))).name == "app"

    with Store.open(f"sqlite:///{tmp_path / 'log.db'}") as store:
        _, token = store.create_key("app")
        find = store.key_of
        monkeypatch.setattr(store, "key_of", lambda given: looked_up.append(given) or find(given))
        asyncio.run(strangers_and_a_key(store, token))
    assert looked_up == [token, *(f"fr-invented-{number}" for number in range(30))]
