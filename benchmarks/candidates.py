"""Candidates for a better `auto` from the same sums: each changes one thing, on splits that no other table uses.

Writes docs/results/candidates.md. Run with `.venv/bin/python benchmarks/candidates.py`. Nothing is withheld, so that
every estimator can be fitted to the sums over all clients.
"""

from __future__ import annotations

import os

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from candidate_fits import Fit, around_prices, family_of, free_covariance, noise_by_model, pooled, within_cells
from doubly_robust import HeldOut, best_weights
from estimators import low_rank
from fedrouter.data.partition import ClientData, partition
from fedrouter.data.read import read
from fedrouter.data.simulator import simulated_world
from fedrouter.engines.simulated import simulated_federation
from fedrouter.estimates import Estimates
from fedrouter.evaluations import Evaluations, Floats, Grid
from fedrouter.federation.families.auto import CANDIDATES, blend
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.middleware.fold import WithoutFold
from fedrouter.federation.middleware.memo import Memo
from fedrouter.federation.privacy.rows import folds
from fedrouter.frontier import sweep
from fedrouter.pooling import Moments
from fedrouter.routers.base import Router
from fedrouter.routers.kmeans import KMeansRouter, nearest_centre, soft_assignment
from fedrouter.routers.linear import LinearRouter
from quality import DATA, SETS, reencoded
from quality_page import FOLDER, interval

SPLITS = {
    "routerbench_subset": (21, 22, 23, 24),
    "llmrouter_mix": (21, 22, 23, 24),
    "mmlu_pro": (21, 22),
    "openllm_v2": (21, 22),
}
"""More of the small sets, whose areas vary more."""
WORLDS = (21, 22, 23, 24)
SIMULATED = "simulated worlds"
COLUMNS = (*SETS, SIMULATED)
FOLDS = (0, 1)
AS_IT_IS = "**`auto` as it is**"
CONCLUSION = """\
**Kept**: a variance of deviations for each model. Where models are specialists, as in the simulated worlds, it helps;
on the real sets it changes nothing beyond noise. **Dropped**: the rest; no row has an interval above zero on the real
sets.

- A free covariance between models contains the variances and does no better, at several times the computation. Two
  factors, a low-rank matrix, lose on the real sets and more in the worlds.
- Models have hundreds of rows each, so that prior means from prices, or from prices and the family in a model's name,
  move hardly anything. Noise of labels that differs between models, in the ratio of the variances within the cells of
  K-Means, loses a little.
- Clusters weighted by proximity are the option `kmeans.soft` ([estimators.md](estimators.md)).
- Weights chosen by the error of differences, or by the doubly robust value, lose on the real sets, and their gains in
  the worlds are within noise. Both are noisier than the error of accuracy: the value corrects estimates only on rows
  whose model is the one that the blend chooses, and divides by the chance of that. Taken only if better by two standard
  errors, it is nearly always `auto` as it is.
- Joining two encoders adds nothing beyond noise.

Estimators of different kinds from the same sums are within a few thousandths of each other on the real sets, so no
combination of them is 0.005 above what there was: `auto` on `static` is level with what there was on all-mpnet-base-v2
([quality.md](quality.md#encoders)). What is left is in the text and in the number of rows.
"""


@dataclass(frozen=True)
class Split:
    """What `auto` would learn from: candidates on all rows and without each fold, the rows of the folds, and a test."""

    whole: list[Router]
    held_out: list[HeldOut]
    embeddings: Floats
    truth: Grid

    @classmethod
    def of(cls, clients: Sequence[ClientData], seed: int) -> Split:
        test = Evaluations.concatenate([client.test for client in clients if client.test.queries])
        federation = Memo(simulated_federation({client.name: client.train for client in clients}, "open"))

        def learned(within: Memo | WithoutFold) -> list[Router]:
            return [FAMILIES[name].learn(within, test.pool, FAMILIES[name].settings(), seed) for name in CANDIDATES]

        held_out = []
        for fold in FOLDS:
            rows = []
            for client in clients:
                own = client.train
                inside = (folds(own.embeddings, client.name) == fold)[own.query]
                shares = np.bincount(own.model, minlength=len(own.pool)) / max(1, len(own))
                chance = np.tile(shares, (int(inside.sum()), 1))
                embeddings = own.embeddings[own.query[inside]]
                rows.append((embeddings, own.model[inside], own.accuracy[inside], own.cost[inside], chance))
            columns = (np.concatenate(column) for column in zip(*rows, strict=True))
            held_out.append(HeldOut(learned(WithoutFold(federation, fold)), *columns))
        return cls(learned(federation), held_out, test.embeddings, test.grid())

    def soft(self) -> Split:
        """The same with a K-Means router that averages over all centres by distance."""

        def changed(routers: Sequence[Router]) -> list[Router]:
            return [replace(each, soft=True) if isinstance(each, KMeansRouter) else each for each in routers]

        held_out = [replace(fold, routers=changed(fold.routers)) for fold in self.held_out]
        return replace(self, whole=changed(self.whole), held_out=held_out)

    def weights(self, differences: bool = False) -> Floats:
        """The blend with the least error on the folds, of accuracies or only of differences between models.

        For differences, every candidate predicts the same level of a query, the mean of all.
        """
        errors = np.zeros((len(CANDIDATES),) * 2)
        for fold in self.held_out:
            found, _ = fold.estimates()
            if differences:
                level = found.mean(axis=2, keepdims=True)
                found = found - level + level[:, 1:].mean(axis=1, keepdims=True)
            wrong = found[np.arange(len(fold.model)), :, fold.model] - fold.accuracy[:, None]
            errors += wrong.T @ wrong
        return blend(errors)

    def blended(self, weights: Floats, method: Fit = pooled) -> Estimates:
        """Estimates of the blend, its accuracies fitted by another method than the router's."""
        parts = [(weight, router) for weight, router in zip(weights, self.whole, strict=True) if weight > 0]
        accuracy = sum(weight * accuracies(router, self.embeddings, method) for weight, router in parts)
        cost = sum(weight * router.estimate(self.embeddings).cost for weight, router in parts)
        return Estimates(self.truth.pool, np.asarray(accuracy), np.asarray(cost))


def accuracies(router: Router, embeddings: Floats, method: Fit) -> Floats:
    """The accuracies ``(n, M)`` that a router would estimate if its sums were fitted by another method."""
    if isinstance(router, KMeansRouter):
        count, totals = router.sums.count, router.sums.accuracy.totals()
        one_hot = np.eye(len(count))[nearest_centre(embeddings, router.centres)]
        share = soft_assignment(embeddings, router.centres) if router.soft else one_hot
        features = np.concatenate([np.ones((len(embeddings), 1)), share], axis=1)
        grams = np.stack([np.diag(np.r_[column.sum(), column]) for column in count.T.astype(float)])
        grams[:, 0, 1:] = grams[:, 1:, 0] = count.T
        products = np.concatenate([totals.sum(axis=0)[:, None], totals.T], axis=1)
        squares = router.sums.accuracy_squares.totals().sum(axis=0)
    else:
        assert isinstance(router, LinearRouter)
        features, grams, products = router.features(embeddings), router.sums.full_gram(), router.sums.accuracy.totals()
        squares = router.sums.accuracy_squares.totals()
    rows = grams[:, 0, 0].astype(int)
    centre = float(products[:, 0].sum() / rows.sum())
    centred = squares - 2 * centre * products[:, 0] + centre**2 * rows
    weights = method(Moments(rows, grams, products - centre * grams[:, 0], centred))
    return np.clip(centre + features @ weights.T, 0, 1)


def kernel_on(clients: Sequence[ClientData], seed: int) -> Estimates:
    federation = simulated_federation({client.name: client.train for client in clients}, "open")
    test = Evaluations.concatenate([client.test for client in clients if client.test.queries])
    family = FAMILIES["kernel"]
    return family.learn(federation, test.pool, family.settings(), seed).estimate(test.embeddings)


def joined(ours: Sequence[ClientData], theirs: Sequence[ClientData]) -> list[ClientData]:
    """The embeddings of two encoders side by side."""

    def both(one: Evaluations, other: Evaluations) -> Evaluations:
        vectors = np.concatenate([one.embeddings, other.embeddings], axis=1) / np.float32(np.sqrt(2))
        return replace(one, embeddings=vectors)

    return [
        replace(one, train=both(one.train, other.train), test=both(one.test, other.test))
        for one, other in zip(ours, theirs, strict=True)
    ]


def measure(split: Split) -> dict[str, Estimates]:
    weights = split.weights()
    kmeans = split.whole[CANDIDATES.index("kmeans")]
    assert isinstance(kmeans, KMeansRouter)
    price = np.nanmean(split.whole[CANDIDATES.index("linear")].estimate(split.embeddings).cost, axis=0)
    families = [family_of(name) for name in split.truth.pool.names]
    noise = within_cells(kmeans.sums)
    soft = split.soft()
    equal = np.array([0.0, 1.0, 1.0, 1.0]) / 3
    return {
        AS_IT_IS: split.blended(weights),
        "one variance of deviations for all models (before)": split.blended(weights, partial(pooled, borrowed=np.inf)),
        "free covariance between models": split.blended(weights, free_covariance),
        "two factors: a low-rank matrix of model × feature": split.blended(weights, low_rank),
        "prior means of models from their prices": split.blended(weights, partial(around_prices, price=price)),
        "prior means from prices and families": split.blended(
            weights, partial(around_prices, price=price, families=families)
        ),
        "noise of labels by model, from within cells": split.blended(weights, partial(noise_by_model, variance=noise)),
        "clusters weighted by proximity": soft.blended(soft.weights()),
        "equal weights": split.blended(equal),
        "weights by the error of differences between models": split.blended(split.weights(differences=True)),
        "weights by the doubly robust value over λ": split.blended(best_weights(split.held_out, weights)),
        "the same, if better by two standard errors": split.blended(best_weights(split.held_out, weights, 2.0)),
        "only `kernel`": split.blended(np.eye(4)[3]),
    }


JOINED = "only `kernel`, `static` and all-mpnet-base-v2 joined"
Areas = dict[str, dict[str, list[float]]]
"""`aiq` by candidate and by data set, one for each split."""


def measured(parts: Sequence[str]) -> Areas:
    """Every candidate on every split of these sets and worlds, printed as they come."""
    table: Areas = {}

    def note(name: str, split: Split, found: dict[str, Estimates]) -> None:
        for row, estimates in found.items():
            table.setdefault(row, {}).setdefault(name, []).append(sweep(estimates, split.truth).measures.aiq)
        areas = {row: round(areas[name][-1], 4) for row, areas in table.items() if name in areas}
        print(name, areas, file=sys.stderr, flush=True)

    for name in (name for name in SETS if name in parts):
        path = DATA / f"{name}.parquet"
        files, other = read(path).evaluations, read(path, encoder="static").evaluations
        for seed in SPLITS[name]:
            mpnet = partition(files, seed=seed)
            static = reencoded(mpnet, other)
            split = Split.of(static, seed)
            note(name, split, measure(split) | {JOINED: kernel_on(joined(static, mpnet), seed)})
    for world in WORLDS if SIMULATED in parts else ():
        split = Split.of(partition(simulated_world(world).evaluations, seed=world), world)
        note(SIMULATED, split, measure(split))
    return table


def page(table: Areas) -> str:
    base = table[AS_IT_IS]
    splits = ", ".join(f"{', '.join(map(str, seeds))} of {name}" for name, seeds in SPLITS.items())
    lines = [
        "# Candidates for a better `auto`",
        "",
        f"`aiq` on `static` without protection. Splits {splits}; simulated worlds {', '.join(map(str, WORLDS))}.",
        "No other table uses them, but they were looked at to decide. Each row changes one thing in the blend that",
        "`auto` learns. Then the mean of the real sets, and this row less `auto` as it is, paired over their splits",
        "and over the worlds, with 95% intervals.",
        "",
        "    .venv/bin/python benchmarks/candidates.py",
        "",
        f"| | {' | '.join(COLUMNS)} | real sets | less `auto`, real sets | less `auto`, worlds |",
        f"|---|{'---|' * (len(COLUMNS) + 3)}",
    ]
    for row, areas in table.items():
        shown = (f"{np.mean(areas[name]):.4f}" if name in areas else "" for name in COLUMNS)
        gaps = {name: np.subtract(areas[name], base[name]) for name in areas}
        real = np.mean([np.mean(areas[name]) for name in SETS])
        less = interval(np.concatenate([gaps[name] for name in SETS])), interval(gaps.get(SIMULATED, np.zeros(2)))
        less = ("", "") if row == AS_IT_IS else (less[0], less[1] if SIMULATED in gaps else "")
        lines.append(f"| {row} | {' | '.join(shown)} | {real:.4f} | {' | '.join(less)} |")
    return "\n".join([*lines, "", CONCLUSION])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", action="append", choices=COLUMNS, help="repeatable, only printed; default: all")
    parts = parser.parse_args().part
    table = measured(parts or COLUMNS)
    if not parts:
        (FOLDER / "candidates.md").write_text(page(table))
        print(page(table))


if __name__ == "__main__":
    main()
