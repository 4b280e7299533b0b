import numpy as np
import pytest

from conftest import drawn_evaluations
from fedrouter.data.partition import partition
from fedrouter.errors import BadInput
from fedrouter.evaluations import Evaluations, Grid, first_alike
from fedrouter.pool import ModelPool


@pytest.fixture(scope="module")
def table():
    return drawn_evaluations(queries=2000, models=4, per_query=4)


def rows(part):
    return {vector.tobytes() for vector in part.embeddings}


def test_every_query_goes_to_exactly_one_client_and_one_side(table):
    split = partition(table)
    sides = [rows(side) for client in split for side in (client.train, client.test)]
    assert sum(map(len, sides)) == len(set().union(*sides)) == 2000


def test_a_text_that_occurs_again_stays_on_one_side_of_one_client(table):
    again = np.concatenate([np.arange(2000), np.arange(500)])
    vectors = np.vstack([table.embeddings, np.random.default_rng(0).normal(size=(500, table.embeddings.shape[1]))])
    texts = tuple(f"question {number}" for number in again)  # as if the encoder had been run again, slightly otherwise
    tasks = tuple(np.random.default_rng(1).permutation(["a", "b", "c", "d", "e"] * 500))
    grid = table.grid()
    doubled = Evaluations.from_grid(
        Grid(grid.pool, grid.accuracy[again], grid.cost[again]), vectors, task=tasks, text=texts
    )
    sides = [side.text for client in partition(doubled) for side in (client.train, client.test)]
    assert sum(map(len, sides)) == 2500
    assert sum(len(set(side)) for side in sides) == 2000


def test_texts_with_one_embedding_count_as_one_text(table):
    # Long texts that an encoder cuts off at the same place, where a router sees no difference.
    vectors = np.vstack([table.embeddings[:1000], table.embeddings[:1000]])
    grid = table.grid()
    alike = Evaluations.from_grid(grid, vectors, text=tuple(f"question {number}" for number in range(2000)))
    sides = [rows(side) for client in partition(alike) for side in (client.train, client.test)]
    assert sum(map(len, sides)) == len(set().union(*sides)) == 1000


def test_queries_are_alike_in_chains():
    vectors = np.eye(4)[[0, 1, 0, 2, 3]]
    linked = Evaluations(
        ModelPool(["m"]), vectors, np.arange(5), np.zeros(5, int), np.ones(5), np.ones(5), None, "abbcc"
    )
    assert first_alike(linked).tolist() == [0, 0, 0, 3, 3]


def test_versions_of_the_same_queries_are_alike_if_any_version_says_so():
    pool, every, ones = ModelPool(["m"]), np.arange(3), np.ones(3)
    read_whole, read_the_start = (
        Evaluations(pool, np.eye(3)[rows], every, 0 * every, ones, ones, None, "abc") for rows in ([0, 1, 2], [0, 1, 1])
    )
    assert first_alike(read_whole).tolist() == [0, 1, 2]
    assert first_alike(read_whole, read_the_start).tolist() == first_alike(read_the_start).tolist() == [0, 1, 1]


def test_three_quarters_of_each_client_are_for_training(table):
    for client in partition(table):
        total = client.train.queries + client.test.queries
        assert client.train.queries == round(0.75 * total)


def test_training_has_one_model_a_query_and_the_test_has_all(table):
    for client in partition(table):
        assert len(client.train) == client.train.queries
        assert len(np.unique(client.train.query)) == client.train.queries
        assert len(client.test) == 4 * client.test.queries
        assert client.test.grid().known.all()


def test_training_rows_are_the_tables_own(table):
    truth = {vector.tobytes(): row for row, vector in enumerate(table.embeddings)}
    grid = table.grid()
    client = partition(table)[0]
    for row in range(50):
        query = truth[client.train.embeddings[client.train.query[row]].tobytes()]
        assert client.train.accuracy[row] == grid.accuracy[query, client.train.model[row]]
        assert client.train.cost[row] == grid.cost[query, client.train.model[row]]


def test_small_alpha_makes_specialists_and_large_alpha_makes_clients_alike(table):
    def skew(alpha):
        shares = []
        for client in partition(table, alpha=alpha):
            tasks = np.unique(client.train.task or ["none"], return_counts=True)[1]
            shares.append(tasks.max() / max(1, tasks.sum()))
        return np.mean(shares)

    assert skew(0.03) > 0.85
    assert skew(1000) < 0.35


def test_model_alpha_makes_clients_ask_few_models(table):
    def top(model_alpha):
        return np.mean(
            [
                np.bincount(c.train.model, minlength=4).max() / len(c.train)
                for c in partition(table, model_alpha=model_alpha)
            ]
        )

    assert top(0.05) > 0.8
    assert top(None) < 0.4


def test_models_are_drawn_among_those_that_answered(table):
    grid = table.grid()
    unknown = np.random.default_rng(0).random(grid.accuracy.shape) < 0.5
    unknown[:, 0] = False
    holed = Grid(grid.pool, np.where(unknown, np.nan, grid.accuracy), np.where(unknown, np.nan, grid.cost))
    sparse = Evaluations.from_grid(holed, table.embeddings, task=table.task)
    split = partition(sparse, model_alpha=0.02)
    assert sum(len(client.train) for client in split) == sum(client.train.queries for client in split)


def test_the_seed_decides(table):
    one, two, other = (partition(table, seed=seed)[0].train.digest() for seed in (0, 0, 1))
    assert one == two != other


def test_names_sort_in_the_order_of_clients(table):
    names = [client.name for client in partition(table, clients=12)]
    assert names == sorted(names)
    assert names[0] == "client-01"


@pytest.mark.parametrize("wrong", [{"clients": 0}, {"alpha": 0}, {"alpha": float("nan")}, {"model_alpha": -1}])
def test_settings_that_make_no_sense_are_refused(table, wrong):
    with pytest.raises(BadInput, match=next(iter(wrong))):
        partition(table, **wrong)
