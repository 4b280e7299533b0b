"""The clipped sum of DP-SGD: the gradients are right, and a row changes the sum by its own gradient alone."""

import numpy as np
import pytest

from fedrouter.federation.dp.gradients import SHARED, SUM_BITS, Rows, clipped_sums
from fedrouter.federation.local_training import network_of, torch_names
from fedrouter.routers.mlp import HEADS, PROJECTION, initial_weights
from fedrouter.testing.sensitivity import KERNEL_BOUNDARIES

WIDTH, MODELS = 8, 3


def network(kind, seed=0):
    draw = np.random.default_rng(seed)
    weights = initial_weights(WIDTH, (6, 5), MODELS, seed)
    for name in weights:
        if name.startswith("norm"):
            weights[name] = (weights[name] + draw.normal(0, 0.2, weights[name].shape)).astype(np.float32)
    if kind == "mf":
        heads = {name: array for name, array in weights.items() if name.startswith(HEADS)}
        weights = {PROJECTION: draw.normal(size=(5, WIDTH)).astype(np.float32), **heads}
    return weights


def some_rows(size, distilled=False, width=WIDTH, models=MODELS, seed=1):
    draw = np.random.default_rng(seed)
    embeddings = draw.normal(size=(size, width)).astype(np.float32)
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    return Rows(
        embeddings,
        draw.integers(0, models, size),
        draw.uniform(size=size),
        draw.normal(size=size),
        np.array([0, 2] if distilled else [], np.int64),
        draw.uniform(size=(size, 2, 2)) if distilled else None,
        0.8 if distilled else 0.0,
    )


def as_numbers(sums, clip_norm):
    return {name: np.ldexp(total.astype(np.float64), -SUM_BITS) * clip_norm for name, total in sums.items()}


@pytest.mark.parametrize("kind", ["mlp", "mf"])
@pytest.mark.parametrize("distilled", [False, True])
def test_gradients_are_those_of_automatic_differentiation(kind, distilled):
    import torch

    weights, rows = network(kind), some_rows(9, distilled)
    shared = torch.nn.Linear(5, 2).double()
    module = network_of(weights, 0.0).double()
    module[SHARED] = shared
    hidden = module["trunk"](torch.from_numpy(rows.embeddings).double())
    found = torch.stack([module[head](hidden) for head in HEADS], dim=1) + shared(hidden)[:, :, None]
    predicted = torch.stack([found[:, 0].sigmoid(), found[:, 1]], dim=1)
    own = predicted[torch.arange(9), :, torch.from_numpy(rows.model)]
    loss = ((own - torch.from_numpy(np.stack([rows.accuracy, rows.cost], axis=1))) ** 2).sum()
    if distilled:
        moved = (predicted[:, :, rows.anchored] - torch.from_numpy(rows.frozen)) ** 2
        loss = loss + rows.distillation * moved.sum(dim=1).mean(dim=1).sum()
    loss.backward()
    names = torch_names(weights)
    expected = {names.get(name, name): parameter.grad.numpy() for name, parameter in module.named_parameters()}
    ours = {name: array.astype(np.float64) for name, array in weights.items()}
    ours |= {f"{SHARED}.{kind}": value.detach().numpy() for kind, value in shared.named_parameters()}
    sums = as_numbers(clipped_sums(ours, rows, 100.0), 100.0)  # nothing is clipped
    assert set(sums) == set(expected)
    for name, gradient in expected.items():
        assert sums[name] == pytest.approx(gradient, abs=9 * 3e-4)
    heads = clipped_sums(ours, rows, 100.0, heads_only=True)
    assert {name.split(".")[0] for name in heads} == {*HEADS, SHARED}


@pytest.mark.parametrize("kind", ["mlp", "mf"])
def test_a_row_alone_is_clipped_to_the_norm(kind):
    for clip_norm in (1e-3, 0.1):
        sums = as_numbers(clipped_sums(network(kind), some_rows(1), clip_norm), clip_norm)
        length = np.linalg.norm(np.concatenate([part.ravel() for part in sums.values()]))
        assert 0.999 * clip_norm < length <= clip_norm


@pytest.mark.parametrize("kind", ["mlp", "mf"])
@pytest.mark.parametrize("distilled", [False, True])
def test_the_sum_is_that_of_its_rows_to_the_bit(kind, distilled):
    """So one row more changes it by that row's own gradient, whatever kernel BLAS takes for so many rows."""
    weights, most = network(kind), max(KERNEL_BOUNDARIES)
    rows = some_rows(most, distilled)
    alone = [clipped_sums(weights, rows.take(np.array([row])), 0.1) for row in range(most)]
    for size in KERNEL_BOUNDARIES:
        together = clipped_sums(weights, rows.take(np.arange(size)), 0.1)
        for name, total in together.items():
            assert np.array_equal(total, sum(one[name] for one in alone[:size]))


def test_a_gradient_that_is_not_finite_counts_as_none():
    huge = {name: np.full(array.shape, 3e300) for name, array in network("mlp").items()}
    assert not any(total.any() for total in clipped_sums(huge, some_rows(5), 1.0).values())
