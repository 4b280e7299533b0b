"""What the client process does besides answering."""

import pytest

pytest.importorskip("flwr")

from types import SimpleNamespace

from fedrouter.deployment.client.run_client import logged


@pytest.mark.parametrize("log", ["/dev/full", "/nowhere/client.log"])
def test_a_log_that_cannot_be_written_does_not_end_the_client(log, tmp_path):
    """As on a full disk: a client that answers goes on, since what it sends is in its journal."""
    heard = []
    logged(SimpleNamespace(log_file=tmp_path.__class__(log)), heard.append)("request: hello")
    assert heard == ["request: hello"]
