"""A client built from its state directory: its evaluations from a log or a store, its privacy, its journal."""

import os
from dataclasses import replace

import pytest

from conftest import drawn_evaluations, write_log
from fedrouter.deployment.client.local_client import ClientCache, client_of
from fedrouter.deployment.state.directories import create_client, create_coordinator
from fedrouter.errors import BadInput, Refused
from fedrouter.federation.families.mlp import CostsRequest
from fedrouter.federation.noise import Noise
from fedrouter.federation.privacy.policy import MinimumGroupSizes, PrivacyPolicy
from fedrouter.federation.verbs.hello import HelloRequest
from fedrouter.store.store import Store
from learning.logs import records_of


@pytest.fixture
def directory(tmp_path):
    coordinator = create_coordinator(tmp_path / "coordinator", ("localhost",))
    return create_client(tmp_path / "client", "alpha", "localhost:9092", coordinator.authority)


def give(directory, **settings):
    directory.write_config(replace(directory.config(), **settings))


def log(path, rows):
    return str(write_log(path, rows))


def test_a_client_of_a_log_says_who_it_is_and_what_it_knows(directory, tmp_path):
    rows = drawn_evaluations(queries=90)
    give(directory, log=log(tmp_path / "log.parquet", rows), encoder="mine")
    hello = client_of(directory.path).answer("hello", HelloRequest())
    assert (hello.name, hello.encoder, hello.dimension, hello.normalised) == ("alpha", "mine", 8, True)
    assert hello.models == rows.pool.names


def test_a_client_of_a_store_has_the_scored_requests_of_its_encoder(directory, tmp_path):
    url = f"sqlite:///{tmp_path / 'store.db'}"
    rows = drawn_evaluations(queries=90)
    with Store.open(url) as store:
        records = records_of(rows)
        odd = [replace(records[0], id="another", encoder="another"), replace(records[1], id="unscored", score=None)]
        store.append([*records, *odd])
    give(directory, store=url, encoder="all-MiniLM-L6-v2")
    client = client_of(directory.path)
    assert client.answer("hello", HelloRequest()).encoder == "all-MiniLM-L6-v2"
    assert len(client._evaluations) == 90
    give(directory, store=url, encoder="unheard-of")
    with pytest.raises(BadInput, match="no scored request with an embedding by unheard-of"):
        client_of(directory.path)


def test_a_client_without_evaluations_to_read_says_so(directory):
    with pytest.raises(BadInput, match="neither a log nor a store"):
        client_of(directory.path)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({}, PrivacyPolicy()),
        ({"floors": None}, PrivacyPolicy(minimum_sizes=None)),
        ({"floors": {"cluster": 9, "cell": 7}, "secure_only": True}, PrivacyPolicy(MinimumGroupSizes(9, 7), True)),
        ({"noise": {"epsilon": 2.0}}, PrivacyPolicy(noise=Noise(2.0))),
        ({"noise": None}, PrivacyPolicy(noise=None)),
    ],
)
def test_the_clients_privacy_is_what_its_home_says(directory, tmp_path, given, meant):
    give(directory, log=log(tmp_path / "log.parquet", drawn_evaluations()), privacy=given)
    assert client_of(directory.path).privacy == meant


def test_a_member_sends_no_sum_in_the_clear_unless_its_owner_allows_it(directory, tmp_path):
    give(directory, log=log(tmp_path / "log.parquet", drawn_evaluations(queries=200)))
    question = CostsRequest(("model-0", "model-1", "model-2"))
    with pytest.raises(Refused, match="--no-secure-only"):
        client_of(directory.path).answer("costs", question)
    assert client_of(directory.path).answer("costs", question, hidden=True).count.all()
    give(directory, privacy={"secure_only": False})
    assert client_of(directory.path).answer("costs", question).count.all()


@pytest.mark.parametrize(
    "given",
    [{"flors": None}, {"floors": {"cel": 3}}, {"floors": 5}, {"noise": {"epsilon": -1.0}}, {"noise": {"seed": 1}}],
)
def test_privacy_that_is_not_there_is_refused_and_not_ignored(directory, tmp_path, given):
    give(directory, log=log(tmp_path / "log.parquet", drawn_evaluations()), privacy=given)
    with pytest.raises(BadInput):
        client_of(directory.path)


def test_the_cache_reads_a_log_once_and_again_when_it_has_changed(directory, tmp_path):
    file = log(tmp_path / "log.parquet", drawn_evaluations(queries=90))
    give(directory, log=file, encoder="mine")
    with ClientCache(directory.path) as clients:
        clients.warm()
        first = clients.client_for(1)
        assert clients.client_for(2) is first
        os.utime(file, ns=(1, 1))
        second = clients.client_for(2)
        assert second is not first
        give(directory, privacy={"secure_only": True})
        assert clients.client_for(2).privacy.secure_only


def test_the_cache_reads_a_store_once_for_each_run(directory, tmp_path):
    url = f"sqlite:///{tmp_path / 'store.db'}"
    with Store.open(url) as store:
        store.append(records_of(drawn_evaluations(queries=90)))
    give(directory, store=url, encoder="all-MiniLM-L6-v2")
    with ClientCache(directory.path) as clients:
        clients.warm()
        first = clients.client_for(1)
        assert clients.client_for(1) is first
        assert clients.client_for(2) is not first


def test_the_cache_says_what_is_wrong_when_it_is_asked_and_not_before(directory):
    give(directory, log="/nowhere.parquet")
    with ClientCache(directory.path) as clients:
        clients.warm()
        with pytest.raises(BadInput, match="nowhere"):
            clients.client_for(1)
