"""Steps of DP-SGD: noise of the stated scale, the optimizer, and no dropout."""

import numpy as np
import pytest

from conftest import drawn_evaluations
from fedrouter.federation.client import Client
from fedrouter.federation.dp import dp_sgd
from fedrouter.federation.dp.dp_sgd import AdamW, PrivateSteps, noisy, train
from fedrouter.federation.dp.gradients import SUM_BITS, Rows
from fedrouter.federation.privacy.policy import DifferentialPrivacy, PrivacyPolicy
from fedrouter.federation.verbs.train import TrainRequest
from fedrouter.routers.mlp import CostScale, initial_weights

MODELS = ("model-0", "model-1", "model-2")
SCALE = CostScale(np.full(3, 50), np.log([1e-5, 1e-4, 1e-3]), np.full(3, 0.3), np.ones(3))
NOBODY = Rows(np.zeros((0, 8), np.float32), *[np.zeros(0, int)] * 2, *[np.zeros(0)] * 1, np.zeros(0, int))


def request(weights, **changes):
    settings = {"learning_rate": 1e-3, "weight_decay": 0.0, "clip_norm": 1.0, "dropout": 0.1} | changes
    return TrainRequest(MODELS, weights, SCALE, 1, 32, seed=0, **settings)


def rows_of(evaluations):
    return Rows(
        evaluations.embeddings[evaluations.query],
        evaluations.model,
        evaluations.accuracy,
        SCALE.normalised(evaluations.cost, evaluations.model),
        np.zeros(0, int),
    )


@pytest.mark.parametrize("multiplier", [0.02, 1.0, 7.0])
def test_noise_has_the_stated_scale_and_lies_on_its_grid(multiplier):
    drawn = noisy(np.zeros((200, 100), np.int64), multiplier)
    assert drawn.std() == pytest.approx(multiplier, rel=0.03)
    assert np.abs(drawn.mean()) < 5 * multiplier / np.sqrt(drawn.size)
    grid = 2.0 ** (np.floor(np.log2(multiplier)) - dp_sgd.GRID_BITS)
    assert np.array_equal(drawn, np.rint(drawn / grid) * grid)


def test_noise_is_on_the_sum_of_the_rows():
    total = np.full(1000, 3 << SUM_BITS)
    assert noisy(total, 0.1).mean() == pytest.approx(3.0, abs=0.02)


def test_a_step_moves_weights_as_torch_does():
    import torch

    draw = np.random.default_rng(0)
    ours = {"a": draw.normal(size=(3, 4))}
    theirs = torch.nn.Parameter(torch.from_numpy(ours["a"].copy()))
    optimizer, reference = AdamW(1e-2, 0.1), torch.optim.AdamW([theirs], lr=1e-2, weight_decay=0.1)
    for _ in range(5):
        gradient = draw.normal(size=(3, 4))
        optimizer.step(ours, {"a": gradient})
        theirs.grad = torch.from_numpy(gradient)
        reference.step()
    assert ours["a"] == pytest.approx(theirs.detach().numpy(), rel=1e-9)


def test_training_without_rows_is_noise_alone():
    weights = initial_weights(8, (20,), 3, 0)
    after = train(request(weights), NOBODY, PrivateSteps(4, 0.5, 10.0, 3.0))
    assert set(after) == set(weights)
    assert all((after[name] != weights[name]).any() for name in weights)


def test_training_with_hardly_any_noise_is_training():
    """Twice the same, then: neither dropout nor a seed plays a part."""
    rows, weights = rows_of(drawn_evaluations(60)), initial_weights(8, (6,), 3, 0)
    steps = PrivateSteps(5, 1.0, 60.0, 1e-9)
    first, second = (train(request(weights, dropout=dropout), rows, steps) for dropout in (0.0, 0.9))
    assert all(first[name] == pytest.approx(second[name], abs=1e-5) for name in weights)
    assert any(np.abs(first[name] - weights[name]).max() > 1e-3 for name in weights)


def test_weights_that_are_huge_give_finite_answers():
    huge = {name: np.full_like(array, 3e38) for name, array in initial_weights(8, (4,), 3, 0).items()}
    after = train(request(huge), rows_of(drawn_evaluations(40)), PrivateSteps(2, 0.5, 20.0, 1.0))
    assert all(np.isfinite(array).all() for array in after.values())


def test_training_under_noise_needs_no_torch(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    noise = DifferentialPrivacy(1e9, rows=40)
    client = Client("one", drawn_evaluations(40), PrivacyPolicy(differential_privacy=noise))
    assert client.answer("train", request(initial_weights(8, (4,), 3, 0))).rows == 40
