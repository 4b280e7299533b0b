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

FIGURES = (
    global_test,
    own_test,
    centralized_training,
    new_models,
    new_clients,
    personalization,
    encoders,
    heterogeneity,
    theorem_claims,
)
EXPERIMENTS: Mapping[str, Experiment] = {module.EXPERIMENT.name: module.EXPERIMENT for module in FIGURES}
MEASUREMENTS: Mapping[str, Measurement] = {each.measurement.name: each.measurement for each in EXPERIMENTS.values()}


def chosen(names: Iterable[str]) -> list[Experiment]:
    """The experiments of these names, in the paper's order; ``all`` selects every one."""
    wanted = set(names)
    for name in wanted - {"all"}:
        if name not in EXPERIMENTS:
            raise BadInput(f"experiment {name!r}: expected one of {', '.join(EXPERIMENTS)}, or all")
    return [experiment for name, experiment in EXPERIMENTS.items() if name in wanted or "all" in wanted]
