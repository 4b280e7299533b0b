"""The registry of experiments, in the paper's order; the command, the runner and the tests use it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fedrouter.errors import BadInput
from fedrouter.experiments.experiment import Experiment, Measurement
from fedrouter.experiments.figures import (
    centralized_training,
    encoders,
    global_test,
    heterogeneity,
    new_clients,
    new_models,
    own_test,
    personalization,
)
from fedrouter.experiments.theory import theorem_claims

EXPERIMENTS: Mapping[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        global_test.EXPERIMENT,
        own_test.EXPERIMENT,
        centralized_training.EXPERIMENT,
        new_models.EXPERIMENT,
        new_clients.EXPERIMENT,
        personalization.EXPERIMENT,
        encoders.EXPERIMENT,
        heterogeneity.EXPERIMENT,
        theorem_claims.EXPERIMENT,
    )
}
MEASUREMENTS: Mapping[str, Measurement] = {
    experiment.measurement.name: experiment.measurement for experiment in EXPERIMENTS.values()
}


def chosen(names: Iterable[str]) -> list[Experiment]:
    """The experiments of these names, in the paper's order; ``all`` selects every one."""
    wanted = set(names)
    for name in wanted - {"all"}:
        if name not in EXPERIMENTS:
            raise BadInput(f"experiment {name!r}: expected one of {', '.join(EXPERIMENTS)}, or all")
    return [experiment for name, experiment in EXPERIMENTS.items() if name in wanted or "all" in wanted]
