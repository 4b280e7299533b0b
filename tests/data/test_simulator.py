import hashlib

import numpy as np
import pytest

from fedrouter.data.simulator import CAST, EMBEDDINGS, FOLDER, PROMPTS, expected_answers, simulated_world
from fedrouter.encoders.shape import STATISTICS

DIGESTS = {
    PROMPTS: "8bb5589b49c76b1be9d110e1864613aa4b51f4197d004d41d5756547fa5f6563",
    EMBEDDINGS: "94d633d66b6718d48112b62e5b52263f1d102bb21df82581a1ed6121d576cb3e",
}
"""Nothing makes these files again: routers, tables and fixtures that were made with them rely on every byte."""


@pytest.mark.parametrize("name", DIGESTS)
def test_the_files_that_ship_are_those_that_were_made_once(name):
    assert hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() == DIGESTS[name]


def test_the_world_has_a_dozen_tasks_a_dozen_models_and_about_four_thousand_prompts(world):
    evaluations = world.evaluations
    assert 3800 <= evaluations.queries <= 4200
    assert len(set(evaluations.text)) == evaluations.queries
    assert len(set(evaluations.task)) == len(evaluations.pool) == 12
    assert evaluations.grid().known.all()
    assert (world.encoder.name, world.encoder.normalised) == ("static", True)
    assert evaluations.embeddings.shape[1] == world.encoder.dimension == 256 + len(STATISTICS)


def test_it_says_that_it_is_simulated(world):
    assert world.simulated
    assert "simulated" in world.name


def test_every_fictional_model_has_prices(world):
    assert all(
        model.input_price > 0 and model.output_price > 0 and model.context > 0 for model in world.evaluations.pool
    )


def test_no_model_is_best_everywhere_so_routing_can_pay(world):
    grid, task = world.evaluations.grid(), np.array(world.evaluations.task)
    best = {int(grid.accuracy[task == label].mean(axis=0).argmax()) for label in np.unique(task)}
    assert len(best) >= 5


def test_harder_prompts_are_answered_worse(world):
    difficulty = expected_answers()[0].difficulty
    accuracy = world.evaluations.grid().accuracy.mean(axis=1)
    assert accuracy[difficulty < 0.3].mean() > accuracy[difficulty > 0.7].mean() + 0.2


def test_the_seed_draws_other_answers_to_the_same_prompts(world):
    other = simulated_world(seed=1)
    assert simulated_world().evaluations.digest() == world.evaluations.digest()
    assert other.evaluations.text == world.evaluations.text
    assert not np.array_equal(other.evaluations.accuracy, world.evaluations.accuracy)


def test_dear_models_cost_more(world):
    cost = world.evaluations.grid().cost.mean(axis=0)
    names = [character.model.name for character in CAST]
    assert cost[names.index("atlas-max")] > 10 * cost[names.index("atlas-mini")]
    assert cost.argmin() == names.index("indigo-nano")
