"""The in-process engine keeps the contract of engines."""

import pytest

from fedrouter.engines.local import LocalFederation
from fedrouter.errors import BadInput
from fedrouter.testing.engines import ENGINE_CHECKS
from fedrouter.testing.samples import sample_clients


@pytest.mark.parametrize("check", ENGINE_CHECKS)
def test_the_in_process_engine_keeps_the_contract(check):
    check(LocalFederation)


def test_two_clients_of_one_name_are_refused():
    with pytest.raises(BadInput, match="two clients"):
        LocalFederation(sample_clients("alpha", "alpha"))
