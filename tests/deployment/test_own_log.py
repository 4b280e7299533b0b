"""A member's evaluations: the federation's embeddings, and read again only if the log has changed."""

import os

import numpy as np
import pytest

pytest.importorskip("pyarrow")

from fedrouter.data.simulator import simulated_world
from fedrouter.data.split import write_table
from fedrouter.deployment.own_log import OwnLog, read_own
from fedrouter.encoders import EncoderIdentity
from fedrouter.errors import BadInput


@pytest.fixture
def table(tmp_path):
    """A table of texts with the embeddings of another encoder."""
    world = simulated_world().evaluations.of_queries(np.arange(60))
    path = tmp_path / "log.parquet"
    write_table(path, world, EncoderIdentity("another", world.dimension, True))
    return path


def test_texts_are_encoded_where_the_file_has_embeddings_of_another_encoder(table):
    rows, encoder = read_own(str(table), "static")
    assert (encoder.name, rows.dimension) == ("static", 275)
    rows, encoder = read_own(str(table), "another")
    assert encoder.name == "another"


def test_a_log_is_read_again_only_if_its_file_has_changed(table):
    log = OwnLog(str(table), "another")
    first = log.read()
    assert log.read() is first
    os.utime(table, ns=(1, 1))
    assert log.read() is not first
    table.unlink()
    with pytest.raises(BadInput, match="No such file"):
        log.read()


def test_an_empty_store_has_nothing_of_this_encoder(tmp_path):
    from fedrouter.store.store import Store

    url = f"sqlite:///{tmp_path}/fedrouter.db"
    Store.open(url, create=True).close()
    with pytest.raises(BadInput, match="no scored request with an embedding by static"):
        read_own(url, "static")
