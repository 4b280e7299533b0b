"""The in-process engine keeps the contract of engines."""

import pytest

from fedrouter.engines.local import LocalFederation
from fedrouter.errors import BadInput
from fedrouter.testing.engines import ENGINE_CHECKS, check_replies_arrive_unchanged
from fedrouter.testing.samples import sample_clients


@pytest.mark.parametrize("check", ENGINE_CHECKS)
def test_the_in_process_engine_keeps_the_contract(check):
    check(LocalFederation)


def test_two_clients_of_one_name_are_refused():
    with pytest.raises(BadInput, match="two clients"):
        LocalFederation(sample_clients("alpha", "alpha"))


def test_the_suite_notices_an_engine_that_changes_a_reply():
    class Lossy(LocalFederation):
        def ask(self, verb, payload, to=None):
            replies = dict(super().ask(verb, payload, to))
            if verb == "statistics":
                replies["beta"] = replies["alpha"]
            return replies

    with pytest.raises(AssertionError, match="statistics: the reply of beta was changed"):
        check_replies_arrive_unchanged(Lossy)
