"""Local training in a round of Algorithm 1: epochs of AdamW on a client's rows, in torch.

Only this needs the [train] extra.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedrouter.encoders.device import training_device
from fedrouter.errors import MissingExtra
from fedrouter.evaluations import Embeddings, Integers
from fedrouter.routers.mlp import HEADS, NORM_EPSILON, Weights, first_layer, hidden_sizes, outputs

if TYPE_CHECKING:
    import torch

    from fedrouter.federation.verbs.train import TrainRequest


LEAST_ROWS = 5
"""No step is taken on fewer rows, if there are more."""


def train(
    request: TrainRequest,
    embeddings: Embeddings,
    model: Integers,
    accuracy: npt.NDArray[np.float64],
    cost: npt.NDArray[np.float64],
    seed: int,
) -> tuple[Weights, float]:
    """Weights after ``request.epochs`` over the rows ``(n, …)``, and the mean loss of the last epoch.

    ``cost`` is normalized by the federation's scale. The loss is the paper's: squared error of accuracy plus squared
    error of cost, each on the head of the one model that was asked.

    With ``request.heads_only`` the trunk is frozen and only heads are returned. With a ``request.base`` the loss also
    has the paper's regularizer (section "When New Clients Join the System"): the mean over models of the squared
    distance of accuracy and cost from the outputs of the base.
    """
    with seeded_torch(seed) as torch:
        device = training_device()
        network = to_train(request).to(device)
        moving = [parameter for parameter in network.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(moving, lr=request.learning_rate, weight_decay=request.weight_decay)
        inputs = torch.from_numpy(embeddings.copy()).to(device)
        asked = torch.from_numpy(model.copy())[:, None].to(device)
        targets = torch.from_numpy(np.stack([accuracy, cost], axis=1).astype(np.float32)).to(device)
        anchored = torch.tensor([request.models.index(name) for name in request.anchored], dtype=torch.int64)
        anchored = anchored.to(device)
        base = None
        if request.base:
            base = torch.from_numpy(outputs(request.base, embeddings).astype(np.float32)).to(device)[:, :, anchored]
        loss_sum = 0.0
        network.train()
        for _ in range(request.epochs):
            loss_sum = 0.0
            for batch in batches(torch.randperm(len(embeddings)).to(device), request.batch_size):
                hidden = network["trunk"](inputs[batch])
                found = torch.stack([network[head](hidden) for head in HEADS], dim=1)
                predicted = torch.stack([found[:, 0].sigmoid(), found[:, 1]], dim=1)  # (batch, 2, M)
                own = predicted.gather(2, asked[batch][:, :, None].expand(-1, 2, 1))[:, :, 0]
                loss = ((own - targets[batch]) ** 2).sum(dim=1).mean()
                if base is not None:
                    moved = (predicted[:, :, anchored] - base[batch]) ** 2
                    loss = loss + request.distillation * moved.sum(dim=1).mean()
                optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(moving, request.clip_norm)
                optimizer.step()
                loss_sum += loss.item() * len(batch)
        return weights_of(network, request), loss_sum / len(embeddings)


def batches(order: torch.Tensor, size: int) -> list[torch.Tensor]:
    """Batches of ``size`` rows; a last one of fewer than :data:`LEAST_ROWS` joins the one before it."""
    import torch

    found = list(torch.split(order, size))
    if len(found) > 1 and len(found[-1]) < LEAST_ROWS:
        found[-2:] = [torch.cat(found[-2:])]
    return found


def to_train(request: TrainRequest) -> torch.nn.ModuleDict:
    """The network as it was sent, with the parameters to train set to require gradients."""
    network = network_of(request.weights, request.dropout)
    network["trunk"].requires_grad_(not request.heads_only)
    return network


def weights_of(network: torch.nn.ModuleDict, request: TrainRequest) -> Weights:
    """The weights of a trained network that the reply holds."""
    state = {key: value.detach().cpu().numpy().copy() for key, value in network.state_dict().items()}
    names = {name: key for key, name in torch_names(request.weights).items()}
    return {name: state[names[name]] for name in request.returned_weights()}


def network_of(weights: Weights, dropout: float) -> torch.nn.ModuleDict:
    """The network of :func:`fedrouter.routers.mlp.forward` as a torch module, holding these weights."""
    import torch

    layers: list[torch.nn.Module] = []
    width = first_layer(weights).shape[1]
    for size in hidden_sizes(weights):
        layers += [
            torch.nn.Linear(width, size),
            torch.nn.LayerNorm(size, eps=NORM_EPSILON),
            torch.nn.GELU(),
            torch.nn.Dropout(dropout),
        ]
        width = size
    heads = {head: torch.nn.Linear(width, len(weights[f"{head}.bias"])) for head in HEADS}
    network = torch.nn.ModuleDict({"trunk": torch.nn.Sequential(*layers), **heads})
    names = torch_names(weights)
    network.load_state_dict({key: torch.from_numpy(weights[name].copy()) for key, name in names.items()})
    return network


def torch_names(weights: Weights) -> dict[str, str]:
    """Our name of each weight by torch's: a layer and its norm are items 4i and 4i+1 of the trunk."""
    names = {}
    for name in weights:
        part, kind = name.split(".")
        if part.startswith(("layer", "norm")):
            index = 4 * (int(part.removeprefix("layer").removeprefix("norm")) - 1)
            names[f"trunk.{index + part.startswith('norm')}.{kind}"] = name
        else:
            names[name] = name
    return names


@contextmanager
def seeded_torch(seed: int) -> Iterator[torch]:  # type: ignore[valid-type]
    """Torch, seeded and on one thread, with its global state restored afterwards.

    One thread, because these networks are small: with more, synchronization takes longer than the work.
    """
    try:
        import torch
    except ImportError:
        raise MissingExtra("Training the MLP router", "train") from None
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield torch
    finally:
        torch.set_num_threads(threads)
