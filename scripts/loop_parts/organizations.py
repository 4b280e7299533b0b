"""Three organizations of the simulated world, each with its own kind of queries, split by use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedrouter.data.partition import partition
from fedrouter.data.read import Dataset
from fedrouter.data.simulator import CAST, simulated_world
from fedrouter.encoders import EncoderIdentity
from fedrouter.errors import BadInput
from fedrouter.evaluations import Evaluations
from fedrouter.pool import ModelPool

CLIENTS = 3
ALPHA = 1.0
"""How similar the organizations are: the concentration of the Dirichlet that assigns each task's queries."""
TRIAL = 25
"""Queries of each organization on which every model is tried before there is any traffic."""
MODELS = (
    *("beacon-large", "cobalt-code", "docket-law", "ember-med"),
    *("fathom-math", "glossa-polyglot", "harbor-scribe", "indigo-nano"),
)
"""The pool: one expensive model that is good at most tasks, and seven cheap ones that are good at one."""
CHARACTERS = tuple(character for character in CAST if character.model.name in MODELS)


@dataclass(frozen=True)
class Organization:
    """The prompts of one organization; no prompt is used twice, in one organization or in two."""

    name: str
    trial: Evaluations
    traffic: Sequence[Sequence[str]]
    """By round."""
    held_out: Sequence[str]


@dataclass(frozen=True)
class World:
    """The organizations, the models they can use, and the encoder of the gateways."""

    dataset: Dataset
    pool: ModelPool
    organizations: Sequence[Organization]

    @property
    def encoder(self) -> EncoderIdentity:
        return self.dataset.encoder


def make_world(rounds: int, requests: int, held_out: int, seed: int) -> World:
    """Assign the simulated world's prompts to organizations; the seed determines the assignment."""
    dataset = simulated_world()
    pool = ModelPool(character.model for character in CHARACTERS)
    evaluations = dataset.evaluations.over(pool)
    index = {text: row for row, text in enumerate(evaluations.text or ())}
    draw = np.random.default_rng(seed)
    organizations = []
    for client in partition(evaluations, CLIENTS, ALPHA, seed=seed):
        asked, kept = (draw.permutation(np.array(part.text, object)).tolist() for part in (client.train, client.test))
        trial, traffic = asked[:TRIAL], asked[TRIAL:]
        if len(traffic) <= requests * (rounds - 1):
            raise BadInput(f"{client.name} has {len(traffic)} queries: too few for {rounds} rounds of {requests}")
        organizations.append(
            Organization(
                client.name,
                evaluations.of_queries([index[text] for text in trial]),
                [traffic[start : start + requests] for start in range(0, rounds * requests, requests)],
                kept[:held_out],
            )
        )
    return World(dataset, pool, organizations)
