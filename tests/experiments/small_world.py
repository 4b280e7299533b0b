"""A world small enough to measure every experiment on in seconds, and what every experiment must be able to say."""

import json

from conftest import drawn_evaluations
from fedrouter.data.read import Dataset
from fedrouter.encoders import EncoderIdentity
from fedrouter.experiments.claims import VERDICTS
from fedrouter.experiments.experiment import Document, Experiment, World

ROUNDS = 2


class SmallWorld(World):
    """The paper's settings but for a network that is small, too."""

    def settings_of(self, name):
        return super().settings_of(name).changed(hidden=(16,))


def small_world(queries=400, models=9, tasks=20, seed=0) -> World:
    """Every model asked every query; the tasks are drawn apart from the embeddings."""
    drawn = drawn_evaluations(queries, models, dimension=8, per_query=models)
    object.__setattr__(drawn, "task", tuple(f"task-{place % tasks}" for place in range(queries)))
    identity = EncoderIdentity.of("drawn", drawn.embeddings)
    return SmallWorld(Dataset("drawn", drawn, identity, "sha256:none"), seed, ROUNDS, "nowhere.csv")


def measured(experiment: Experiment, world: World) -> Document:
    """A measurement as it comes back from disk."""
    document = experiment.measurement.run(world)
    return json.loads(json.dumps(document, allow_nan=False))


def check_what_it_says(experiment: Experiment, runs: list[Document], names: set[str]) -> None:
    """Sheets with lines, a summary in JSON, and every claim judged."""
    for sheet in experiment.sheets(runs):
        assert sheet.panels
        assert sheet.caption
        for panel in sheet.panels:
            assert len(panel.lines) >= 2 or experiment.name == "theorems"  # a term may be infinite on few rows
            assert all(len(line.x) == len(line.y) > 0 for line in panel.lines)
    assert json.loads(json.dumps(experiment.summary(runs), allow_nan=False))
    claims = experiment.claims(runs)
    assert {claim.name for claim in claims} == names
    assert len(claims) == len(names)
    assert all(claim.verdict in VERDICTS for claim in claims)
    assert not any("nan" in claim.measured.split() for claim in claims)
