"""A split written as files reads back as the clients it was made of."""

import numpy as np
import pytest

from conftest import drawn_evaluations
from fedrouter.data.partition import partition
from fedrouter.data.read import read
from fedrouter.data.split import write_log, write_split
from fedrouter.encoders import EncoderIdentity
from fedrouter.evaluations import Evaluations

MPNET = EncoderIdentity("all-mpnet-base-v2", 8, normalised=True)


@pytest.fixture(scope="module")
def table():
    """Two of three queries share their text with another one, as in RouterBench."""
    drawn = drawn_evaluations(queries=300, models=4, per_query=4)
    text = tuple(f"Question {row // 2 if row % 3 else row}?" for row in range(300))
    return Evaluations.from_grid(drawn.grid(), drawn.embeddings, task=drawn.task, text=text)


@pytest.fixture(scope="module")
def written(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("clients")
    clients = partition(table, clients=12, alpha=0.3, seed=3)
    return clients, folder, *write_split(clients, MPNET, folder)


def same(one, two):
    assert one.digest() == two.digest()  # pool, tasks, embeddings to the bit, every evaluation in its order
    assert one.text == two.text


def test_a_log_reads_back_as_the_clients_training_rows(written, table):
    clients, folder, files, _ = written
    assert any(len(set(client.train.text)) < client.train.queries for client in clients)
    for client, file in zip(clients, files, strict=True):
        assert file.log == folder / f"{client.name}.parquet"
        dataset = read(file.log, pool=table.pool)
        same(dataset.evaluations, client.train)
        assert dataset.encoder.name == "all-mpnet-base-v2"


def test_without_a_pool_a_log_has_the_models_it_names(written):
    clients, _, files, _ = written
    names = {clients[0].train.pool.names[index] for index in clients[0].train.model}
    assert read(files[0].log).evaluations.pool.names == tuple(sorted(names))


def test_the_tests_read_back_alone_and_together(written):
    clients, folder, files, test = written
    for client, file in zip(clients, files, strict=True):
        if client.test.queries:
            same(read(file.own_test).evaluations, client.test)
    assert test == folder / "test.parquet"
    same(read(test).evaluations, Evaluations.concatenate([client.test for client in clients]))


def test_a_model_that_was_not_asked_stays_unasked(tmp_path):
    sparse = drawn_evaluations(queries=40, models=4, per_query=2)
    clients = partition(sparse, clients=2, seed=0)
    _, test = write_split(clients, MPNET, tmp_path)
    known = read(test).evaluations.grid().known
    assert (known.sum(axis=1) == 2).all()


def test_data_without_text_or_tasks_is_split_as_well(tmp_path):
    drawn = drawn_evaluations(queries=40)
    bare = Evaluations(drawn.pool, drawn.embeddings, drawn.query, drawn.model, drawn.accuracy, drawn.cost)
    clients = partition(bare, clients=2, seed=0)
    files, test = write_split(clients, EncoderIdentity("unnamed", 8, normalised=True), tmp_path)
    log = read(files[0].log, pool=bare.pool)
    assert log.evaluations.digest() == clients[0].train.digest()
    assert (log.encoder.name, log.evaluations.text) == ("unnamed", None)
    assert set(read(test).evaluations.task) == {"unlabelled"}


def test_a_client_with_nothing_has_no_file(tmp_path):
    few = drawn_evaluations(queries=4, models=2)
    files, _ = write_split(partition(few, clients=6, alpha=0.05, seed=1), MPNET, tmp_path)
    empty = [file for file in files if file.log is None]
    assert empty
    assert all(file.train == 0 and not (tmp_path / f"{file.name}.parquet").exists() for file in empty)


def test_rows_in_any_order_are_written_query_by_query(tmp_path):
    drawn = drawn_evaluations(queries=20, per_query=3)
    shuffled = drawn.take(np.random.default_rng(0).permutation(len(drawn)))
    again = read(write_log(tmp_path / "log.parquet", shuffled, MPNET), pool=drawn.pool).evaluations
    assert np.array_equal(again.embeddings, shuffled.embeddings)
    assert np.array_equal(again.grid().accuracy, shuffled.grid().accuracy)
    assert np.array_equal(again.grid().cost, shuffled.grid().cost)


@pytest.mark.slow
def test_a_real_benchmark_survives_the_split(real_data, tmp_path):
    dataset = read(real_data / "routerbench_subset.parquet")
    clients = partition(dataset.evaluations)
    files, test = write_split(clients, dataset.encoder, tmp_path)
    for client, file in zip(clients, files, strict=True):
        same(read(file.log, pool=dataset.evaluations.pool).evaluations, client.train)
        same(read(file.own_test).evaluations, client.test)
    same(read(test).evaluations, Evaluations.concatenate([client.test for client in clients]))
