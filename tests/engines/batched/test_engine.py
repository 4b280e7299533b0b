"""The batched engine trains as the local one does: same batches, masks and first weights, and the same replies."""

from dataclasses import replace

import numpy as np
import pytest

from fedrouter.engines.batched import training
from fedrouter.engines.batched.engine import BatchedFederation, BatchedSummedFederation
from fedrouter.engines.batched.layout import Layout
from fedrouter.engines.batched.plan import HASHED, hashed_mask
from fedrouter.engines.batched.training import train_together
from fedrouter.engines.local import LocalFederation
from fedrouter.engines.summed import SummedFederation
from fedrouter.federation.client import Client
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.local_training import TrainingJob, train
from fedrouter.federation.privacy.policy import OPEN
from fedrouter.federation.verbs.train import TrainRequest
from fedrouter.routers.mf import initial_projection
from fedrouter.routers.mlp import PROJECTION, CostScale, head_shapes, initial_weights
from fedrouter.testing.engines import ENGINE_CHECKS, check_families_learn_the_same_router
from fedrouter.testing.samples import POOL, sample_evaluations

torch = pytest.importorskip("torch")

DIMENSION, MODELS, SIZES = 12, 4, (40, 67, 33, 5, 3, 64)
TOLERANCE = 2e-5
"""Of float32: AdamW divides by the size of a gradient, which is nothing but rounding where the gradient is zero."""
MLP = initial_weights(DIMENSION, (24, 16), MODELS, 3)
MF = {
    PROJECTION: initial_projection(DIMENSION, 8, 1),
    **{
        name: np.random.default_rng(2).normal(size=shape).astype(np.float32)
        for name, shape in head_shapes(MODELS, 8).items()
    },
}
CHANGES = {
    "as by default": {},
    "heads of their own": {"shared_step": False},
    "heads only": {"heads_only": True},
    "no dropout": {"dropout": 0.0},
    "distilled": {
        "base": initial_weights(DIMENSION, (24, 16), MODELS, 9),
        "anchored": ("model-0", "model-3"),
        "distillation": 0.7,
    },
    "matrix factorization": {"weights": MF},
}


def request(**changes):
    ones = np.ones(MODELS)
    base = TrainRequest(
        tuple(f"model-{number}" for number in range(MODELS)),
        MLP,
        CostScale(np.full(MODELS, 9), ones, ones, ones),
        2,
        16,
        1e-3,
        3e-4,
        1.0,
        0.1,
        0,
        shared_step=True,
    )
    return replace(base, **changes)


def jobs(asked):
    draw = np.random.default_rng(0)
    return [
        TrainingJob(
            asked,
            draw.normal(size=(size, DIMENSION)).astype(np.float32),
            draw.integers(0, MODELS, size),
            draw.random(size),
            draw.normal(size=size),
            100 + size,
        )
        for size in SIZES
    ]


def alone(job):
    return train(job.request, job.embeddings, job.model, job.accuracy, job.cost, job.seed)


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_clients_of_different_sizes_train_together_as_they_do_alone(changes):
    for job, (weights, loss) in zip(jobs(request(**changes)), train_together(jobs(request(**changes))), strict=True):
        expected, expected_loss = alone(job)
        assert weights.keys() == expected.keys()
        for name, array in expected.items():
            assert weights[name].dtype == np.float32
            assert np.abs(weights[name] - array).max() < TOLERANCE
        assert loss == pytest.approx(expected_loss, abs=1e-5)


@pytest.mark.parametrize("stack_bytes", [training.STACK_BYTES, 1], ids=["stacked", "one by one"])
@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_gradients_are_those_of_autograd_in_float64(changes, stack_bytes, monkeypatch):
    """Both in float64, so that only the mathematics can differ."""
    monkeypatch.setattr(training, "STACK_BYTES", stack_bytes)
    asked = request(**changes)
    together = train_together(jobs(asked), precision="float64", rounded=False)
    import fedrouter.federation.local_training as local

    monkeypatch.setattr(local, "PRECISION", "float64")
    for job, (weights, loss) in zip(jobs(asked), together, strict=True):
        expected, expected_loss = alone(job)
        for name, array in expected.items():
            assert array.dtype == weights[name].dtype == np.float64
            assert np.abs(weights[name] - array).max() < 1e-9
        assert loss == pytest.approx(expected_loss, abs=1e-9)


def test_how_many_train_together_does_not_matter():
    together = train_together(jobs(request()))
    apart = [next(train_together([job])) for job in jobs(request())]
    for (ours, _), (others, _) in zip(together, apart, strict=True):
        assert all(np.abs(ours[name] - others[name]).max() < TOLERANCE for name in ours)


def test_neither_the_number_of_cores_nor_what_a_core_trained_before_changes_a_bit(monkeypatch):
    monkeypatch.setattr(training, "STACK_BYTES", 2 * 4 * Layout.of(MLP).numbers)  # two clients are one computation
    before, found = torch.get_num_threads(), []
    try:
        for cores in (1, 2, 3):
            torch.set_num_threads(cores)
            found.append([*train_together(jobs(request()))])
            assert torch.get_num_threads() == cores
    finally:
        torch.set_num_threads(before)
    for others in found[1:]:
        for (weights, loss), (same, same_loss) in zip(found[0], others, strict=True):
            assert loss == same_loss
            assert all(np.array_equal(weights[name], same[name]) for name in weights)


def test_an_error_among_the_jobs_is_raised_and_leaves_the_number_of_threads(monkeypatch):
    monkeypatch.setattr(training, "STACK_BYTES", 1)
    before = torch.get_num_threads()

    def broken():
        yield jobs(request())[0]
        raise ArithmeticError("broken")

    with pytest.raises(ArithmeticError, match="broken"):
        train_together(broken())
    assert torch.get_num_threads() == before


def test_hashed_masks_keep_the_right_share_and_differ_between_clients_rows_and_units():
    seeds = torch.tensor([1, 2, -5], dtype=torch.int32)
    mask = hashed_mask(seeds, 64, 256, 0.1)
    assert mask.shape == (3, 64, 256)
    assert float(mask.double().mean()) == pytest.approx(0.9, abs=0.01)
    for axis in (0, 1, 2):
        means = mask.double().mean(dim=axis)
        assert float(means.var()) < 0.2
        agree = (mask == mask.roll(1, axis)).double().mean()
        assert float(agree) == pytest.approx(0.9**2 + 0.1**2, abs=0.02)  # as if independent


def test_hashed_masks_train_as_well():
    drawn, hashed = (train_together(jobs(request(epochs=9)), masks=kind) for kind in (None, HASHED))
    assert np.mean([loss for _, loss in hashed]) == pytest.approx(np.mean([loss for _, loss in drawn]), rel=0.1)


@pytest.mark.parametrize(
    "check", [check for check in ENGINE_CHECKS if check is not check_families_learn_the_same_router]
)
def test_the_batched_engine_keeps_the_contract_of_engines(check):
    check(BatchedFederation)


ROWS = {f"client-{number}": sample_evaluations(100 + 30 * number, seed=number) for number in range(5)}


@pytest.mark.parametrize("kinds", [(LocalFederation, BatchedFederation), (SummedFederation, BatchedSummedFederation)])
@pytest.mark.parametrize("name", ["mlp", "mf"])
def test_families_that_train_learn_the_same_router(kinds, name):
    family = FAMILIES[name]
    settings = replace(family.settings(), rounds=2, hidden=(16,))
    routers = [
        family.learn(kind([Client(each, rows) for each, rows in ROWS.items()]), POOL, settings, 3) for kind in kinds
    ]
    expected, ours = (router.arrays() for router in routers)
    assert expected.keys() == ours.keys()
    for part, array in expected.items():
        assert np.allclose(ours[part], array, atol=1e-4), part


def test_a_client_that_has_too_few_rows_answers_without_training():
    few = Client("few", sample_evaluations(3, seed=9))
    asked = []
    for kind in (LocalFederation, BatchedFederation):
        federation = kind([few, *(Client(each, rows, OPEN) for each, rows in ROWS.items())])
        weights = initial_weights(sample_evaluations(3).dimension, (8,), len(POOL), 1)
        ones = np.ones(len(POOL))
        payload = TrainRequest(
            POOL.names, weights, CostScale(np.full(len(POOL), 9), ones, ones, ones), 1, 32, 1e-3, 0.0, 1.0, 0.1, 0
        )
        asked.append(federation.ask("train", payload))
    assert [reply.rows for reply in asked[1].values()] == [reply.rows for reply in asked[0].values()]
    assert asked[1]["few"].rows == 0


def test_an_error_of_one_client_ends_the_others_and_is_raised():
    class Broken(Client):
        def answer(self, verb, request, hidden=False):
            raise ArithmeticError("broken")

    federation = BatchedFederation([Client("a", ROWS["client-0"], OPEN), Broken("b", ROWS["client-1"], OPEN)])
    family = FAMILIES["mlp"]
    with pytest.raises(ArithmeticError, match="broken"):
        family.learn(federation, POOL, family.settings(rounds=1, hidden=(8,)), 0)


def test_half_precision_moves_the_weights_as_single_precision_does():
    asked = jobs(request())
    single, half = (train_together(asked, "cpu", precision, HASHED) for precision in ("float32", "bfloat16"))
    for (ours, loss), (theirs, other) in zip(half, single, strict=True):
        apart = sum(((ours[name] - theirs[name]) ** 2).sum() for name in theirs)
        moved = sum(((theirs[name] - MLP[name]) ** 2).sum() for name in theirs)
        assert apart < 0.3**2 * moved
        assert abs(loss - other) < 0.05 * other
        assert all(array.dtype == np.float32 for array in ours.values())
