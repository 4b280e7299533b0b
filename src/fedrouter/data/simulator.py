"""The simulated world: real text embeddings, fictional models, drawn accuracy and cost.

For `make demo` and for tests, so that both need no data. Prompts were generated from templates
once and have embeddings of the encoder ``static``; the models are fictional. Results
show that the software works, not how well routing works on real models.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from fedrouter.data.read import Dataset
from fedrouter.data.source import file_digest
from fedrouter.encoders import STATIC, EncoderIdentity
from fedrouter.encoders.weights import STATIC_WEIGHTS
from fedrouter.evaluations import Embeddings, Evaluations, Floats, Grid
from fedrouter.pool import Model, ModelPool

NAME = "simulated world"
FOLDER = Path(__file__).parent
PROMPTS, EMBEDDINGS = "simulated_prompts.json", "simulated_embeddings.safetensors"
CODE = ("python_code", "sql", "debugging")
NUMBERS = ("arithmetic", "word_problems")
GRADED = ("creative_writing", "summarization", "translation")
"""Tasks with graded answers; in the others an answer is right or wrong."""


@dataclass(frozen=True)
class Character:
    """A fictional model: its prices, skill and verbosity, and the tasks at which it is better or worse.

    ``skill`` is compared with a prompt's difficulty, both around [0, 1]; ``at`` adds to it by task.
    """

    model: Model
    skill: float
    words: float
    at: dict[str, float]


def _on(tasks: tuple[str, ...], gain: float) -> dict[str, float]:
    return dict.fromkeys(tasks, gain)


# Prices are US dollars per million tokens. Specialists are cheap for their quality, so that routing is worthwhile.
CAST = (
    Character(Model("atlas-max", 10.0, 30.0, 200_000), 0.74, 1.3, _on(("sql",), -0.10)),
    Character(Model("atlas-mini", 0.6, 1.8, 128_000), 0.46, 1.0, {}),
    Character(Model("beacon-large", 3.0, 12.0, 128_000), 0.64, 1.1, _on(("translation", "legal"), -0.12)),
    Character(Model("beacon-small", 0.15, 0.6, 64_000), 0.36, 0.9, _on(("general_knowledge",), 0.15)),
    Character(Model("cobalt-code", 0.9, 2.7, 64_000), 0.35, 1.0, _on(CODE, 0.55) | _on(("creative_writing",), -0.2)),
    Character(Model("docket-law", 1.2, 3.6, 64_000), 0.40, 1.2, _on(("legal",), 0.50) | _on(CODE, -0.25)),
    Character(Model("ember-med", 1.2, 3.6, 64_000), 0.40, 1.2, _on(("medical",), 0.50) | _on(CODE, -0.25)),
    Character(Model("fathom-math", 0.7, 2.1, 32_000), 0.32, 1.6, _on(NUMBERS, 0.60)),
    Character(Model("glossa-polyglot", 0.4, 1.2, 32_000), 0.40, 0.8, _on(("translation",), 0.50)),
    Character(
        Model("harbor-scribe", 0.8, 2.4, 64_000),
        0.42,
        1.4,
        _on(("creative_writing", "summarization"), 0.42) | _on(NUMBERS, -0.25),
    ),
    Character(Model("indigo-nano", 0.04, 0.12, 16_000), 0.25, 0.8, _on(("extraction",), 0.40)),
    Character(Model("juniper-open", 0.3, 0.9, 32_000), 0.42, 1.0, _on(("python_code", "medical"), -0.15)),
)

SPREAD = 0.35
"""Standard deviation of the logarithm of an answer's length."""
ANSWER_TOKENS = {
    "arithmetic": 60,
    "word_problems": 220,
    "python_code": 380,
    "sql": 160,
    "debugging": 320,
    "translation": 120,
    "summarization": 110,
    "extraction": 90,
    "legal": 420,
    "medical": 380,
    "creative_writing": 520,
    "general_knowledge": 140,
}


@dataclass(frozen=True)
class Prompts:
    """The prompts that the package ships: text, task, difficulty ``(q,)`` and embeddings ``(q, d)``."""

    text: tuple[str, ...]
    task: tuple[str, ...]
    difficulty: Floats
    embeddings: Embeddings
    digest: str


@lru_cache(1)
def _prompts() -> Prompts:
    columns = json.loads((FOLDER / PROMPTS).read_text(encoding="utf-8"))
    return Prompts(
        tuple(columns["prompt"]),
        tuple(columns["task"]),
        np.array(columns["difficulty"]),
        load_file(FOLDER / EMBEDDINGS)["embeddings"].astype(np.float32),
        file_digest(FOLDER / PROMPTS),
    )


def simulated_world(seed: int = 0) -> Dataset:
    """Every prompt answered by every fictional model; another seed draws other answers to the same prompts."""
    prompts = _prompts()
    draw = np.random.default_rng(seed)
    accuracy = _accuracy(prompts.task, prompts.difficulty, draw)
    cost = _cost(prompts.text, prompts.task, prompts.difficulty, draw)
    grid = Grid(_pool(), accuracy, cost)
    evaluations = Evaluations.from_grid(grid, prompts.embeddings, task=prompts.task, text=prompts.text)
    encoder = EncoderIdentity(STATIC, prompts.embeddings.shape[1], normalised=True, weights=f"sha256:{STATIC_WEIGHTS}")
    return Dataset(NAME, evaluations, encoder, prompts.digest, simulated=True)


def expected_answers() -> tuple[Prompts, Grid]:
    """The prompts, and the expected accuracy and cost of every model on each: what no data set can tell.

    Expectations of what :func:`simulated_world` draws, except that graded answers are not clipped to [0, 1].
    """
    prompts = _prompts()
    cost = _cost(prompts.text, prompts.task, prompts.difficulty, None)
    return prompts, Grid(_pool(), _chance(prompts.task, prompts.difficulty), cost)


def _pool() -> ModelPool:
    return ModelPool(character.model for character in CAST)


def _chance(tasks: tuple[str, ...], difficulty: Floats) -> Floats:
    """The probability of a right answer ``(q, M)``: a logistic function of skill minus difficulty."""
    skill = np.array([[character.skill + character.at.get(task, 0.0) for character in CAST] for task in tasks])
    return np.asarray(1 / (1 + np.exp(-6.0 * (skill - difficulty[:, None] + 0.10))))


def _accuracy(tasks: tuple[str, ...], difficulty: Floats, draw: np.random.Generator) -> Floats:
    """Accuracy: a draw with the probability of a right answer; in graded tasks the probability, with noise."""
    chance = _chance(tasks, difficulty)
    right = (draw.random(chance.shape) < chance).astype(np.float64)
    degree = np.clip(chance + draw.normal(0, 0.12, chance.shape), 0, 1).round(2)
    return np.where(np.isin(tasks, GRADED)[:, None], degree, right)


def _cost(
    prompts: tuple[str, ...], tasks: tuple[str, ...], difficulty: Floats, draw: np.random.Generator | None
) -> Floats:
    """US dollars for the prompt's tokens, of four characters each, and for an answer of random or expected length."""
    asked = np.array([len(prompt) / 4 for prompt in prompts])[:, None]
    usual = np.array([ANSWER_TOKENS[task] for task in tasks]) * (0.6 + 0.8 * difficulty)
    words = np.array([character.words for character in CAST])
    length = np.exp(SPREAD**2 / 2) if draw is None else draw.lognormal(0, SPREAD, (len(prompts), len(CAST)))
    answered = usual[:, None] * words * length
    prices = np.array([[c.model.input_price, c.model.output_price] for c in CAST], np.float64)
    return np.asarray((asked * prices[:, 0] + answered * prices[:, 1]) / 1e6)
