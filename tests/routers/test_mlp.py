import numpy as np
import pytest
import torch

from fedrouter.federation.local_training import network_of
from fedrouter.routers.mlp import LEAST_COST, CostScale, forward, initial_weights, log_cost


@pytest.mark.parametrize("seed", range(3))
def test_numpy_inference_equals_torch_within_1e_5(seed):
    weights = initial_weights(64, (512, 512), 7, seed)
    draw = np.random.default_rng(seed)
    # Norms away from the identity, so that they are tested too.
    weights |= {n: draw.normal(1, 0.3, w.shape).astype(np.float32) for n, w in weights.items() if n.startswith("norm")}
    queries = draw.normal(size=(50, 64)).astype(np.float32)
    network = network_of(weights, dropout=0.1).eval()
    with torch.no_grad():
        hidden = network["trunk"](torch.from_numpy(queries))
        expected = [network[head](hidden).numpy() for head in ("accuracy", "cost")]
    for ours, theirs in zip(forward(weights, queries), expected, strict=True):
        assert np.abs(ours - theirs).max() < 1e-5


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
    kinds = [type(layer).__name__ for layer in network_of(initial_weights(8, (512, 512), 2, 0), 0.1)["trunk"]]
    assert kinds == ["Linear", "LayerNorm", "GELU", "Dropout"] * 2


def test_normalising_cost_and_back_is_the_identity():
    scale = CostScale(np.ones(2, np.int64), np.array([-7.0, -3.0]), np.array([0.5, 1.5]), np.ones(2))
    cost, model = np.array([1e-3, 0.05, 0.2]), np.array([0, 1, 1])
    back = scale.dollars(np.stack([scale.normalised(cost, model)] * 2, axis=1))[range(3), model]
    assert back == pytest.approx(cost)


def test_a_cost_of_nothing_has_a_logarithm():
    assert log_cost(np.array([0.0]))[0] == pytest.approx(np.log(LEAST_COST))


def test_predicted_dollars_stay_finite_however_far_the_output():
    scale = CostScale(np.ones(1, np.int64), np.array([-5.0]), np.array([3.0]), np.ones(1))
    assert np.isfinite(scale.dollars(np.array([[1e6], [-1e6]]))).all()
