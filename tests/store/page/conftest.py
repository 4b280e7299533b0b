"""An open, empty store, in each database."""

import pytest

from fedrouter.store.store import Store


@pytest.fixture
def store(url):
    with Store.open(url) as opened:
        yield opened
