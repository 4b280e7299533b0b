import numpy as np
import pytest
import torch

from fedrouter.federation.families.mlp import network
from fedrouter.routers.mlp import LEAST_SHARE, CostScale, initial_weights, outputs


@pytest.mark.parametrize("seed", range(3))
def test_numpy_inference_equals_torch_within_1e_5(seed):
    weights = initial_weights(64, (512, 512), 7, seed)
    draw = np.random.default_rng(seed)
    # Norms away from the identity, so that they are tested too.
    weights |= {n: draw.normal(1, 0.3, w.shape).astype(np.float32) for n, w in weights.items() if n.startswith("norm")}
    queries = draw.normal(size=(50, 64)).astype(np.float32)
    theirs = network({name: torch.tensor(array) for name, array in weights.items()}, torch.tensor(queries), 0.0)
    assert np.abs(outputs(weights, queries) - theirs.numpy()).max() < 1e-5


def test_the_trunk_is_the_papers():
    shapes = {name: weight.shape for name, weight in initial_weights(768, (512, 512), 11, 0).items()}
    assert shapes == {
        "layer1.weight": (512, 768),
        "layer1.bias": (512,),
        "norm1.weight": (512,),
        "norm1.bias": (512,),
        "layer2.weight": (512, 512),
        "layer2.bias": (512,),
        "norm2.weight": (512,),
        "norm2.bias": (512,),
        "accuracy.weight": (11, 512),
        "accuracy.bias": (11,),
        "cost.weight": (11, 512),
        "cost.bias": (11,),
    }


def test_normalising_cost_and_back_is_the_identity():
    scale = CostScale(np.ones(2, np.int64), np.array([2e-3, 0.1]), np.array([1e-3, 0.2]))
    cost, model = np.array([1e-3, 0.05, 0.2]), np.array([0, 1, 1])
    back = scale.dollars(np.stack([scale.normalised(cost, model)] * 2, axis=1))[range(3), model]
    assert back == pytest.approx(cost)


def test_predicted_dollars_stay_above_a_share_of_the_mean():
    scale = CostScale(np.ones(1, np.int64), np.array([0.01]), np.array([0.03]))
    assert scale.dollars(np.array([[1e6], [-1e6]])).tolist() == [[0.01 + 0.03e6], [0.01 * LEAST_SHARE]]
