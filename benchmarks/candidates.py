"""Candidates for a better `auto` from the same sums: each changes one thing, on splits that no other table uses.

Writes docs/results/candidates.md. Run with `.venv/bin/python benchmarks/candidates.py`. Nothing is withheld, so that
every estimator can be fitted to the sums over all clients.
"""

from __future__ import annotations

import os

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from fedrouter.data.partition import ClientData, partition
from fedrouter.data.read import read
from fedrouter.data.simulator import simulated_world
from fedrouter.engines.simulated import simulated_federation
from fedrouter.estimates import Estimates
from fedrouter.evaluations import Evaluations, Floats, Grid, Integers
from fedrouter.federation.families.auto import CANDIDATES, blend
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.middleware.fold import WithoutFold
from fedrouter.federation.middleware.memo import Memo
from fedrouter.federation.privacy.rows import folds
from fedrouter.frontier import sweep
from fedrouter.pooling import Moments, Posterior, fit
from fedrouter.routers.base import Router
from fedrouter.routers.kmeans import KMeansRouter, nearest_centre
from fedrouter.routers.linear import LinearRouter
from quality import DATA, SETS, reencoded
from quality_page import FOLDER, interval

SEEDS = (21,)
WORLDS = (21, 22)
FOLDS = (0, 1)
AS_IT_IS = "**`auto` as it is**"
Fit = Callable[[Moments], Posterior]
CONCLUSION = """\
**Kept**: a variance of deviations for each model. Where models are specialists, as in the simulated worlds, it helps;
on the real sets it changes nothing. A free covariance between models contains it and does no better, at several times
the computation. **Dropped**: the rest. Models have hundreds of rows each, so that a prior mean from the price moves
hardly anything; weights chosen by the error of differences are noisier than those by the error of accuracy, which are
little better than equal ones; joining two encoders adds nothing.

Estimators of different kinds from the same sums are within a few thousandths of each other on the real sets, so no
combination of them is 0.005 above what there was: `auto` on `static` is level with what there was on all-mpnet-base-v2
([quality.md](quality.md#encoders)). What is left is in the text and in the number of rows.
"""


@dataclass(frozen=True)
class Split:
    """What `auto` would learn from: candidates on all rows and without each fold, the rows of the folds, and a test."""

    whole: list[Router]
    held_out: list[tuple[list[Router], Floats, Integers, Floats]]
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
                rows.append((own.embeddings[own.query[inside]], own.model[inside], own.accuracy[inside]))
            columns = (np.concatenate(column) for column in zip(*rows, strict=True))
            held_out.append((learned(WithoutFold(federation, fold)), *columns))
        return cls(learned(federation), held_out, test.embeddings, test.grid())

    def weights(self, differences: bool = False) -> Floats:
        """The blend with the least error on the folds, of accuracies or only of differences between models.

        For differences, every candidate predicts the same level of a query, the mean of all.
        """
        errors = np.zeros((len(CANDIDATES),) * 2)
        for routers, embeddings, model, accuracy in self.held_out:
            every = np.stack([router.estimate(embeddings).accuracy for router in routers], axis=1)  # (n, J, M)
            found = np.where(np.isnan(every), 0.5, every)
            if differences:
                level = found.mean(axis=2, keepdims=True)
                found = found - level + level[:, 1:].mean(axis=1, keepdims=True)
            wrong = found[np.arange(len(model)), :, model] - accuracy[:, None]
            errors += wrong.T @ wrong
        return blend(errors)

    def blended(self, weights: Floats, method: Fit = fit) -> Estimates:
        """Estimates of the blend, its accuracies fitted by another method than the router's."""
        parts = [(weight, router) for weight, router in zip(weights, self.whole, strict=True) if weight > 0]
        accuracy = sum(weight * accuracies(router, self.embeddings, method) for weight, router in parts)
        cost = sum(weight * router.estimate(self.embeddings).cost for weight, router in parts)
        return Estimates(self.truth.pool, np.asarray(accuracy), np.asarray(cost))


def accuracies(router: Router, embeddings: Floats, method: Fit) -> Floats:
    """The accuracies ``(n, M)`` that a router would estimate if its sums were fitted by another method."""
    if isinstance(router, KMeansRouter):
        count, totals = router.sums.count, router.sums.accuracy.totals()
        features = np.eye(len(count) + 1)[1 + nearest_centre(embeddings, router.centres)]
        features[:, 0] = 1
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
    found = method(Moments(rows, grams, products - centre * grams[:, 0], centred))
    return np.clip(centre + features @ found.weights.T, 0, 1)


def around_prices(moments: Moments, price: Floats) -> Posterior:
    """Deviations of a model's mean are from a line through the logarithms of prices ``(M,)``, not from one mean."""
    rows = np.maximum(moments.count, 1)
    weight = np.sqrt(rows)
    line = np.c_[np.ones(len(price)), np.log(price)]
    slope = np.linalg.lstsq(line * weight[:, None], moments.product[:, 0] / rows * weight, rcond=None)[0]
    trend = line @ slope
    product = moments.product - trend[:, None] * moments.gram[:, 0]
    squares = moments.squares - 2 * trend * moments.product[:, 0] + trend**2 * moments.count
    found = fit(Moments(moments.count, moments.gram, product, squares))
    found.weights[:, 0] += trend
    return found


def free_covariance(moments: Moments, borrowed: float = 10.0, iterations: int = 20) -> Posterior:
    """Weights of a feature covary between models as the data say, shrunk toward one covariance for all pairs; by EM."""
    models, width = moments.product.shape
    start = fit(moments)
    between = np.cov(start.weights[:, 1:]) + float(start.weights[:, 1:].var()) * np.eye(models)
    intercepts = start.noise + max(float(start.weights[:, 0].var()), 1e-3) * np.eye(models)
    noise, first = start.noise, np.arange(models) * width
    for _ in range(iterations):
        precision = np.kron(np.linalg.inv(between), np.diag(np.r_[0.0, np.ones(width - 1)]))
        precision[np.ix_(first, first)] = np.linalg.inv(intercepts)
        for model in range(models):
            own = slice(model * width, (model + 1) * width)
            precision[own, own] += moments.gram[model] / noise
        covariance = np.linalg.inv(precision)
        weights = (covariance @ moments.product.ravel() / noise).reshape(models, width)
        blocks = covariance.reshape(models, width, models, width)
        second = weights[:, 1:] @ weights[:, 1:].T + np.einsum("ikjk->ij", blocks[:, 1:, :, 1:])
        diagonal = np.trace(second) / models
        target = np.full((models, models), max((second.sum() - np.trace(second)) / (models * (models - 1)), 0.0))
        np.fill_diagonal(target, diagonal)
        between = (borrowed / (width - 1) * target + second) / (borrowed + width - 1)
        each = np.stack([blocks[model, :, model] for model in range(models)])
        error = moments.squares - 2 * (weights * moments.product).sum(axis=1)
        error = error + np.einsum("mi,mij,mj->m", weights, moments.gram, weights) + (moments.gram * each).sum((1, 2))
        noise = float(error.sum() / moments.count.sum())
    return Posterior(weights, each, noise)


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
    price = np.nanmean(split.whole[CANDIDATES.index("linear")].estimate(split.embeddings).cost, axis=0)
    equal = np.array([0.0, 1.0, 1.0, 1.0]) / 3
    return {
        AS_IT_IS: split.blended(weights),
        "one variance of deviations for all models (before)": split.blended(weights, partial(fit, borrowed=np.inf)),
        "free covariance between models": split.blended(weights, free_covariance),
        "prior means of models from their prices": split.blended(weights, partial(around_prices, price=price)),
        "equal weights": split.blended(equal),
        "weights by the error of differences between models": split.blended(split.weights(differences=True)),
        "only `kernel`": split.blended(np.eye(4)[3]),
    }


def main() -> None:
    table: dict[str, dict[str, list[float]]] = {}

    def note(name: str, found: dict[str, Estimates], truth: Grid) -> None:
        for row, estimates in found.items():
            table.setdefault(row, {}).setdefault(name, []).append(sweep(estimates, truth).measures.aiq)
        print(name, {row: round(areas[name][-1], 4) for row, areas in table.items() if name in areas}, file=sys.stderr)

    for name in SETS:
        path = DATA / f"{name}.parquet"
        files, other = read(path).evaluations, read(path, encoder="static").evaluations
        for seed in SEEDS:
            mpnet = partition(files, seed=seed)
            static = reencoded(mpnet, other)
            split = Split.of(static, seed)
            found = measure(split)
            found["only `kernel`, `static` and all-mpnet-base-v2 joined"] = kernel_on(joined(static, mpnet), seed)
            note(name, found, split.truth)
    for world in WORLDS:
        split = Split.of(partition(simulated_world(world).evaluations, seed=world), world)
        note("simulated worlds", measure(split), split.truth)
    columns = (*SETS, "simulated worlds")
    base = table[AS_IT_IS]
    lines = [
        "# Candidates for a better `auto`",
        "",
        f"`aiq` on `static` without protection: split {SEEDS[0]} of four real sets, and the simulated worlds {WORLDS}.",
        "No other table uses them, but they were looked at to decide. Each row changes one thing in the blend that",
        "`auto` learns. Last column: this row less `auto` as it is, paired over the real sets, with the 95% interval.",
        "",
        "    .venv/bin/python benchmarks/candidates.py",
        "",
        f"| | {' | '.join(columns)} | real sets | less `auto` |",
        f"|---|{'---|' * (len(columns) + 2)}",
    ]
    for row, areas in table.items():
        shown = (f"{np.mean(areas[name]):.4f}" if name in areas else "" for name in columns)
        gaps = np.concatenate([np.subtract(areas[name], base[name]) for name in SETS])
        real = np.mean([areas[name] for name in SETS])
        lines.append(f"| {row} | {' | '.join(shown)} | {real:.4f} | {'' if row == AS_IT_IS else interval(gaps)} |")
    lines += ["", CONCLUSION]
    (FOLDER / "candidates.md").write_text("\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
