"""Federated averaging in pfl-research; run by simulators.py in its environment, with torchrun and a process per core.

Writes when each round ended, as JSON, to the file ENDS.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data import FederatedDataset
from pfl.data.dataset import Dataset
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel

from simulators_task import (
    ACTIVE,
    BATCH,
    CLIENTS,
    CLIP_NORM,
    EPOCHS,
    LEARNING_RATE,
    network,
    optimizer,
    rows_of,
)

DRAW = np.random.default_rng(0)


class Ends(TrainingProcessCallback):
    """When each round ended."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def after_central_iteration(self, aggregate_metrics: Any, model: Any, *, central_iteration: int) -> Any:
        self.ends.append(time.time())
        return False, Metrics()


def user_dataset(client: int) -> Dataset:
    """A client's rows in a random order, as tensors: pfl-research does not shuffle."""
    order = DRAW.permutation(len(rows_of(client)[0]))
    return Dataset([torch.from_numpy(part[order]) for part in rows_of(client)], user_id=str(client))


def main() -> None:
    rounds = int(sys.argv[1])
    torch.set_num_threads(1)
    users = FederatedDataset(user_dataset, lambda: int(DRAW.integers(CLIENTS)))
    net = network()
    model = PyTorchModel(net, optimizer, torch.optim.SGD(net.parameters(), lr=1.0))
    ends = Ends()
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=rounds,
            evaluation_frequency=rounds + 1,
            train_cohort_size=ACTIVE,
            val_cohort_size=0,
        ),
        SimulatedBackend(users, users, [WeightByDatapoints()]),
        model,
        NNTrainHyperParams(
            local_num_epochs=EPOCHS,
            local_learning_rate=LEARNING_RATE,
            local_batch_size=BATCH,
            local_max_grad_norm=CLIP_NORM,
        ),
        NNEvalHyperParams(local_batch_size=None),
        callbacks=[ends],
    )
    if os.environ.get("RANK", "0") == "0":
        Path(os.environ["ENDS"]).write_text(json.dumps(ends.ends))


if __name__ == "__main__":
    main()
