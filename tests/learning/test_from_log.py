"""Learning from a gateway's log: the same evidence in any batches, corrections that leave no trace, new models."""

from dataclasses import replace

import numpy as np
import pytest

from conftest import drawn_evaluations
from fedrouter.bundle import Provenance, load, save
from fedrouter.encoders.cells import Cells
from fedrouter.encoders.feature_map import map_of_width
from fedrouter.errors import BadInput
from fedrouter.evidence import Evidence
from fedrouter.learning import from_log
from fedrouter.learning.from_log import learn_from_log, with_rows
from fedrouter.learning.traffic import evaluations_of, pool_in
from fedrouter.pool import ModelPool
from fedrouter.release import Release
from fedrouter.routers.bayes import BayesRouter
from fedrouter.store.store import Store
from learning.logs import ENCODER, learned, record, records_of

NAME = "gateway"


@pytest.fixture(scope="module")
def rows():
    return drawn_evaluations(150, 4, seed=11)


@pytest.fixture
def log(tmp_path):
    with Store.open(f"sqlite:///{tmp_path}/log.db") as store:
        yield store


def saved(folder, router, provenance=Provenance("d", "", 0, 1, [{"name": "bank", "rows": 9}], {})):
    return load(save(folder, router, ENCODER, provenance))


def step(log, folder, bundle=None):
    """Learn once, and the bundle that comes of it."""
    found = learn_from_log(log, NAME, ENCODER, bundle)
    return saved(folder, found.router, found.provenance)


def test_it_is_the_evidence_of_the_log_in_batches_of_any_size(log, rows, monkeypatch):
    log.append(records_of(rows))
    whole = learn_from_log(log, NAME, ENCODER, None)
    monkeypatch.setattr(from_log, "BATCH", 7)
    parts = learn_from_log(log, NAME, ENCODER, None).router.evidence
    assert parts.over(whole.router.pool) == whole.router.evidence
    assert whole.router.evidence.over(rows.pool) == Evidence.of(rows, map_of_width(rows.dimension))
    assert whole.rows == len(rows)


def test_evidence_is_added_to_that_of_the_router_in_service_under_its_own_map(log, rows, tmp_path):
    before = drawn_evaluations(120, 4, seed=1)
    cells = replace(map_of_width(8), cells=Cells(np.eye(2, 8), np.full(2, 0.5), (2,)))
    base = BayesRouter.of(Evidence.of(before, cells))
    log.append(records_of(rows))
    found = step(log, tmp_path / "new", saved(tmp_path / "base", base))
    assert found.router.evidence == base.evidence + Evidence.of(rows, cells)
    assert set(found.clients) == {"bank", NAME}
    assert (found.version, found.clients[NAME]["rows"]) == (2, len(rows))


def test_learning_twice_counts_nothing_twice_and_takes_late_and_corrected_scores(log, rows, tmp_path):
    """In three steps, with late scores and corrections, the same evidence as in one step at the end."""
    unscored = [replace(one, score=None, scored_by=None, scored_at=None) for one in records_of(rows)]
    log.append(unscored)
    for row in range(0, 100, 2):
        log.score(unscored[row].id, float(rows.accuracy[row]), "key-1", 2e6 + row)
    first = step(log, tmp_path / "1")
    for row in range(1, len(rows), 2):  # late ones
        log.score(unscored[row].id, float(rows.accuracy[row]), "key-1", 3e6 + row)
    for row in range(0, 20, 2):  # corrections
        log.score(unscored[row].id, 0.125, "key-1", 4e6 + row)
    second = step(log, tmp_path / "2", first)
    at_once = step(log, tmp_path / "3")
    assert second.router.evidence.over(at_once.router.pool) == at_once.router.evidence
    assert second.clients[NAME]["rows"] == at_once.clients[NAME]["rows"]
    assert second.manifest["change"]["corrected"] == 10
    assert second.manifest["parent"] == first.manifest["digest"]
    with pytest.raises(BadInput, match="nothing to learn"):
        learn_from_log(log, NAME, ENCODER, second)


def test_a_new_model_enters_with_its_first_row(log, rows, tmp_path):
    known = drawn_evaluations(120, 4, seed=1)
    base = learned(known.take(np.flatnonzero(known.model < 2)).over(ModelPool(known.pool.names[:2])), "bayes")
    log.append([record(1, served="brand-new")])
    found = step(log, tmp_path / "new", saved(tmp_path / "base", base))
    assert found.router.pool.names == (*known.pool.names[:2], "brand-new")
    assert found.router.rows_by_model()[-1] == 1


def test_beside_a_federation_s_total_new_models_are_learned_too(log, rows, tmp_path):
    features = map_of_width(rows.dimension)
    base = BayesRouter.of(Evidence.none(rows.pool, features), Release.of(rows, features))
    log.append([*records_of(rows), record(500, served="brand-new")])
    found = step(log, tmp_path / "new", saved(tmp_path / "base", base))
    assert found.router.evidence.over(rows.pool) == Evidence.of(rows, features)
    assert found.router.evidence.count[-1] == 1
    np.testing.assert_array_equal(found.router.total.count, [*base.total.count, 0])


def test_a_router_without_evidence_is_replaced(log, rows, tmp_path):
    log.append(records_of(rows))
    old = saved(tmp_path / "old", learned(drawn_evaluations(50, 4, seed=3), "kmeans"))
    found = step(log, tmp_path / "new", old)
    assert found.router.evidence == learn_from_log(log, NAME, ENCODER, None).router.evidence
    assert (found.version, found.manifest["parent"]) == (2, old.manifest["digest"])
    assert set(found.clients) == {NAME}


def test_a_name_that_a_client_of_the_federation_has_is_refused(log, rows, tmp_path):
    taken = Provenance("d", "", 0, 1, [{"name": NAME, "rows": 9}], {})
    log.append(records_of(rows))
    with pytest.raises(BadInput, match="has the name of the gateway's log"):
        learn_from_log(log, NAME, ENCODER, saved(tmp_path / "base", learned(rows, "bayes"), taken))


def test_rows_at_hand_are_added_as_those_of_a_log_are(log, rows):
    log.append(records_of(rows))
    base = learned(drawn_evaluations(50, 4, seed=3), "bayes", cells=(0,))
    assert with_rows(base, rows).evidence == base.evidence + Evidence.of(rows, base.evidence.features)
    assert with_rows(None, rows).evidence == Evidence.of(rows, map_of_width(rows.dimension))


def test_records_become_the_evaluations_of_the_models_that_answered(rows):
    records = records_of(rows)
    found, left_out = evaluations_of(records, pool_in(records), ENCODER)
    assert not left_out
    assert found.pool.names == rows.pool.names
    np.testing.assert_array_equal(found.model, rows.model)
    np.testing.assert_array_equal(found.accuracy, rows.accuracy)


def test_records_that_teach_nothing_are_counted():
    fallback = record(0, chosen="model-9", served="model-0", reason="named")
    records = [fallback, record(1, served="model-9"), record(2, served=None), record(3, score=None)]
    found, left_out = evaluations_of(records, ModelPool(["model-0"]), ENCODER)
    assert len(found) == 1
    assert left_out == {"model-9 is not in the pool": 1, "no model answered": 1, "no score": 1}
    with pytest.raises(BadInput, match="no model answered"):
        pool_in(records[2:3])
