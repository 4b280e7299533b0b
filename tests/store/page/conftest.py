"""An open, empty store, in each database."""

from __future__ import annotations

import pytest

from fedrouter.store.store import Store


@pytest.fixture
def store(url):
    with Store.open(url) as opened:
        yield opened
