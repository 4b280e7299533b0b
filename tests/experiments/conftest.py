import pytest

from fedrouter.experiments import comparison


@pytest.fixture(scope="module", autouse=True)
def clients_of_any_size():
    """Small worlds have clients with a handful of test queries, which would be left out."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparison, "LEAST_TESTS", 1)
        yield
