"""What the coordinator shows of a run is signed with its authority's key, which every client has pinned."""

import pytest

from fedrouter.deployment.state.directories import create_client, create_coordinator
from fedrouter.deployment.state.question_signature import question_signer, question_verifier
from fedrouter.errors import BadInput


def test_a_client_verifies_with_the_authority_that_it_was_created_with(tmp_path):
    coordinator = create_coordinator(tmp_path / "coordinator", ("localhost",))
    other = create_coordinator(tmp_path / "other", ("localhost",))
    client = create_client(tmp_path / "bank", "bank", "localhost:9092", coordinator.authority)
    verify = question_verifier(client.authority)
    signature = question_signer(coordinator.authority_key)(b"statement")
    assert verify(b"statement", signature)
    assert not verify(b"another", signature)
    assert not verify(b"statement", b"")
    assert not verify(b"statement", question_signer(other.authority_key)(b"statement"))


def test_a_coordinator_without_its_key_is_told_so(tmp_path):
    with pytest.raises(BadInput, match=r"ca\.key: expected the key of the federation's authority"):
        question_signer(tmp_path / "ca.key")
