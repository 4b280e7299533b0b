"""Attacks on DP-SGD that once succeeded: searching the noise's seed, and dropout masks that shift with one row more."""

import secrets

import numpy as np

from fedrouter.evaluations import Evaluations
from fedrouter.federation.client import Client
from fedrouter.federation.privacy.policy import DifferentialPrivacy, PrivacyPolicy
from fedrouter.federation.verbs.train import TrainRequest
from fedrouter.pool import ModelPool
from fedrouter.routers.mlp import HEADS, PROJECTION, head_shapes, initial_weights
from fedrouter.testing.sensitivity import CLIP_NORM, LEARNING_RATE, MODELS, SCALE, step_gradient

WIDTH, FACTORS = 16, 4
BATCH = 65_536
SEEDS = 64
"""Seeds that the attacker tries. A Mersenne Twister has 2^32, all of which took six minutes."""


def log(size, seed=0):
    draw = np.random.default_rng(seed)
    embeddings = draw.normal(size=(size, WIDTH)).astype(np.float32)
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    model = draw.integers(0, len(MODELS), size)
    return Evaluations(ModelPool(MODELS), embeddings, np.arange(size), model, np.ones(size), np.full(size, 1e-3))


def client(rows, multiplier):
    noise = DifferentialPrivacy(1e15, multiplier=multiplier, rows=BATCH)
    return Client("victim", rows, PrivacyPolicy(minimum_sizes=None, differential_privacy=noise))


def request(weights, dropout=0.0):
    return TrainRequest(MODELS, weights, SCALE, 1, BATCH, LEARNING_RATE, 0.0, CLIP_NORM, dropout, seed=7)


def noise_of_seed(seed, rows, shapes):
    """What a seed gives in torch: a sample of the rows, then for each weight half the sum of four draws."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    torch.rand(rows, generator=generator)
    found = []
    for shape in shapes:
        torch.normal(0.0, 1.0, (1, 1), generator=generator)
        found.append(sum(torch.normal(0.0, 1.0, shape, generator=generator) for _ in range(4)).double().numpy() / 2)
    return found


def test_noise_cannot_be_subtracted_by_searching_seeds(monkeypatch):
    """With a seeded generator the victim's embedding came back with a cosine of 1.0000."""
    monkeypatch.setattr(secrets, "randbits", lambda bits: secrets.randbelow(SEEDS))
    rows = log(1)
    multiplier = 4.0
    draw = np.random.default_rng(1)
    heads = {
        name: (draw.normal(size=shape) if name.endswith("weight") else np.zeros(shape)).astype(np.float32)
        for name, shape in head_shapes(len(MODELS), FACTORS).items()
    }
    weights = {PROJECTION: np.zeros((FACTORS, WIDTH), np.float32), **heads}
    sent = step_gradient(client(rows, multiplier), request(weights))[PROJECTION] / CLIP_NORM
    best = 0.0
    for seed in range(SEEDS):
        left = sent - multiplier * noise_of_seed(seed, 1, [(FACTORS, WIDTH)])[0]
        if np.linalg.norm(left) < 1.01:  # no clipped gradient is longer: this is the seed
            best = max(best, float(np.abs(np.linalg.svd(left)[2][0] @ rows.embeddings[0])))
    assert best < 0.9


def test_a_row_more_does_not_shift_the_dropout_of_others():
    """With masks from the coordinator's seed, one row more moved the sum by 17 clip norms and more."""
    rows = log(200)
    weights = initial_weights(WIDTH, (32,), len(MODELS), 0)
    sums = []
    for some in (rows, rows.of_queries(np.arange(1, 200))):
        found = step_gradient(client(some, 1e-6), request(weights, dropout=0.5))
        sums.append(np.concatenate([found[f"{head}.weight"].ravel() for head in HEADS]))
    assert np.linalg.norm(sums[0] - sums[1]) / CLIP_NORM < 1.01


def test_membership_cannot_be_told_from_a_step():
    """Which of two logs was trained on, by whose sum without noise is nearer. It was right every time."""
    rows, weights = log(200), initial_weights(WIDTH, (32,), len(MODELS), 0)
    logs = [rows, rows.of_queries(np.arange(1, 200))]
    flat = [f"{head}.weight" for head in HEADS]

    def told(some, noise):
        found = step_gradient(client(some, noise), request(weights, dropout=0.5))
        return np.concatenate([found[name].ravel() for name in flat]) / CLIP_NORM

    whole, fewer = (told(some, 1e-6) for some in logs)
    right = 0
    for attempt in range(40):
        sent = told(logs[attempt % 2], 2.0)
        right += (np.linalg.norm(sent - whole) < np.linalg.norm(sent - fewer)) == (attempt % 2 == 0)
    # Two Gaussians whose means are half a standard deviation apart are told apart in 60% of cases at best.
    assert right < 36
