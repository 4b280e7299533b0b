"""The gradient of each row, from which a client tells how many queries carry a step of training."""

import numpy as np
import pytest

from fedrouter.federation.local_training import network_of, torch_names
from fedrouter.federation.privacy.carriers import Layer, Rows, backward
from fedrouter.routers.mlp import HEADS, initial_weights

WIDTH, MODELS = 8, 3


def network(seed=0):
    draw = np.random.default_rng(seed)
    weights = initial_weights(WIDTH, (6, 5), MODELS, seed)
    for name in weights:
        if name.startswith("norm"):
            weights[name] = (weights[name] + draw.normal(0, 0.2, weights[name].shape)).astype(np.float32)
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


def summed(parts):
    """The sum over rows of the gradients, by weight."""
    sums = {}
    for part in parts:
        if isinstance(part, Layer):
            sums |= {f"{part.name}.weight": part.delta.T @ part.inputs, f"{part.name}.bias": part.delta.sum(axis=0)}
        else:
            sums |= {f"{part.name}.weight": part.weight.sum(axis=0), f"{part.name}.bias": part.bias.sum(axis=0)}
    return sums


@pytest.mark.parametrize("distilled", [False, True])
def test_gradients_are_those_of_automatic_differentiation(distilled):
    import torch

    weights, rows = network(), some_rows(9, distilled)
    module = network_of(weights, 0.0).double()
    hidden = module["trunk"](torch.from_numpy(rows.embeddings).double())
    found = torch.stack([module[head](hidden) for head in HEADS], dim=1)
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
    sums = summed(backward(ours, rows, heads_only=False))
    assert set(sums) == set(expected)
    for name, gradient in expected.items():
        assert sums[name] == pytest.approx(gradient, abs=9 * 3e-4)
    heads = summed(backward(ours, rows, heads_only=True))
    assert {name.split(".")[0] for name in heads} == set(HEADS)
