"""Federated averaging in Flower's simulation (Ray); run by simulators.py in its environment.

Writes when each round ended, as JSON, to the file ENDS.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from simulators_task import ACTIVE, CLIENTS, PARTICIPATION, ROWS, kept_network, network, train

client_app, server_app = ClientApp(), ServerApp()
ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 1
CORES = 2
ends: list[float] = []


class AllTrain(FedAvg):
    """Federated averaging that ends if a client fails: a round without training would be a fast one."""

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
        found = list(replies)
        if len(found) != ACTIVE or any(reply.has_error() for reply in found):
            sys.exit(f"round {server_round}: not all of {ACTIVE} clients trained")
        return super().aggregate_train(server_round, found)


@client_app.train()
def answer(message: Message, context: Context) -> Message:
    model = kept_network()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    train(model, int(context.node_config["partition-id"]))
    content = RecordDict(
        {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": ROWS, "loss": 0.0})}
    )
    return Message(content=content, reply_to=message)


@server_app.main()
def serve(grid: Grid, context: Context) -> None:
    strategy = AllTrain(fraction_train=PARTICIPATION, fraction_evaluate=0.0, min_available_nodes=CLIENTS)

    def ended(number: int, arrays: ArrayRecord) -> None:
        if number:
            ends.append(time.time())

    strategy.start(grid, ArrayRecord(network().state_dict()), num_rounds=ROUNDS, evaluate_fn=ended)


def main() -> None:
    own = {"num_cpus": CORES, "include_dashboard": False}
    run_simulation(
        server_app,
        client_app,
        num_supernodes=CLIENTS,
        backend_config={"init_args": own, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
    Path(os.environ["ENDS"]).write_text(json.dumps(ends))


if __name__ == "__main__":
    main()
