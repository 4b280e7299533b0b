"""Heterogeneity of clients: the distribution of their queries, tasks and models."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fedrouter.data.partition import ClientData
from fedrouter.evaluations import Embeddings, Evaluations, Floats, Integers
from fedrouter.experiments.claims import Claim, better, spread, untestable
from fedrouter.experiments.comparison import over_seeds
from fedrouter.experiments.experiment import Document, Experiment, Measurement, Runs, Watch, World
from fedrouter.experiments.sheet import Bubbles, Line, Panel, Sheet
from fedrouter.experiments.table import tabulate
from fedrouter.federation.seeds import derive

QUERIES, MODELS = "Query Heterogeneity", "Model Heterogeneity"
COMPONENTS = 50
"""Principal components kept before t-SNE: enough to find neighbors, and much faster than all."""
STEPS = 6_000_000
"""Iterations times queries: 1,000 iterations up to 6,000 queries, fewer above, so that a large set takes minutes."""
TASKS = ("one", "two", "three", "four", "five", "six")
DRAWS = 20
"""Random even splits, which show how far clients would differ by chance."""


def run(world: World, watch: Watch) -> Document:
    """How far clients' mixes of tasks and models are from the overall; for the first seed, the queries in a plane."""
    clients = world.clients()
    parts = [part for client in clients for part in (client.train, client.test)]
    everyone = Evaluations.concatenate(parts)
    owner = np.repeat(np.arange(len(parts)) // 2, [part.queries for part in parts])
    watch(0.05)
    # The plane takes minutes and is only looked at, so the first seed's is enough.
    first = world.seed == 0
    x, y = positions(everyone.embeddings, world.seed).round(2).T.tolist() if first else ([], [])
    tasks = everyone.task or ("",) * everyone.queries
    labels = sorted(set(tasks))
    task = np.searchsorted(labels, tasks)
    asked = np.concatenate([client.train.model for client in clients])
    asker = np.repeat(np.arange(len(clients)), [len(client.train) for client in clients])
    return {
        "seed": world.seed,
        "protocol": world.protocol.to_json(),
        "clients": [client.name for client in clients],
        "models": list(everyone.pool.names),
        "tasks": labels,
        "queries": {"x": x, "y": y, "client": owner.tolist() if first else [], "task": task.tolist() if first else []},
        "shares": _model_shares(clients).round(4).tolist(),
        "distance": {
            "tasks": _distances(owner, task, len(clients), world.seed),
            "models": _distances(asker, asked, len(clients), world.seed),
        },
    }


def positions(embeddings: Embeddings, seed: int) -> Floats:
    """t-SNE of all queries at once, ``(q, 2)``."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    kept = min(COMPONENTS, *embeddings.shape)
    near = PCA(kept, random_state=seed).fit_transform(embeddings)
    iterations = int(np.clip(STEPS // len(near), 400, 1000))
    perplexity = min(30.0, (len(near) - 1) / 3)
    flat = TSNE(random_state=seed, init="pca", max_iter=iterations, perplexity=perplexity, n_jobs=1)
    return np.asarray(flat.fit_transform(near), np.float64)


def _model_shares(clients: Sequence[ClientData]) -> Floats:
    """Share of each client's training rows that each model answered, ``(clients, M)``."""
    counts = np.array([np.bincount(client.train.model, minlength=len(client.train.pool)) for client in clients])
    return np.asarray(counts / np.maximum(counts.sum(axis=1, keepdims=True), 1))


def _distances(owner: Integers, label: Integers, clients: int, seed: int) -> dict[str, float]:
    """Mean over clients of the total variation distance between their mix of labels and the overall mix.

    Beside it the same for random splits, in which every client has as many queries as before.
    """
    draw = np.random.default_rng(derive(seed, "even split"))
    even = [_distance(draw.permutation(owner), label, clients) for _ in range(DRAWS)]
    return {"measured": _distance(owner, label, clients), "even_split": float(np.mean(even)), "most_even": max(even)}


def _distance(owner: Integers, label: Integers, clients: int) -> float:
    counts = np.zeros((clients, int(label.max()) + 1))
    np.add.at(counts, (owner, label), 1)
    counts = counts[counts.sum(axis=1) > 0]
    mixes, whole = counts / counts.sum(axis=1, keepdims=True), counts.sum(axis=0) / counts.sum()
    return float(np.abs(mixes - whole).sum(axis=1).mean() / 2)


def sheets(runs: Runs) -> Sequence[Sheet]:
    first = runs[0]
    return [_tasks(first), _clients(first), _models(first)]


def _tasks(run: Document) -> Sheet:
    at, task = _plane(run), np.array(run["queries"]["task"])
    largest = np.argsort(-np.bincount(task, minlength=len(run["tasks"])), kind="stable")[: len(TASKS)]
    rest = at[:, ~np.isin(task, largest)]
    lines = [_cloud("other tasks", rest, "everyone")] if rest.size else []
    for kind, index in zip(TASKS, largest, strict=False):
        lines.append(_cloud(run["tasks"][index] or "all queries", at[:, task == index], kind))
    caption = "All queries, by t-SNE of their embeddings; the tasks with most queries are colored."
    return Sheet("queries", caption, [Panel(f"{at.shape[1]:,} queries", lines, axes=False)], columns=1)


def _clients(run: Document) -> Sheet:
    at, owner = _plane(run), np.array(run["queries"]["client"])
    panels = [
        Panel(
            f"{name}, {(owner == index).sum():,} queries",
            [_cloud("", at, "everyone"), _cloud("", at[:, owner == index], "federated")],
            axes=False,
        )
        for index, name in enumerate(run["clients"])
    ]
    caption = (
        f"Each client's queries (blue) among all queries (gray), in the same plane: tasks are split by a Dirichlet "
        f"distribution of concentration {run['protocol']['alpha']}."
    )
    return Sheet("clients", caption, panels, columns=5)


def _models(run: Document) -> Sheet:
    caption = "Share of each client's training rows that each model answered; " + (
        "all clients choose models uniformly."
        if (concentration := run["protocol"]["model_alpha"]) is None
        else f"each client's preferences are drawn from a Dirichlet distribution of concentration {concentration}."
    )
    shares = np.array(run["shares"]).T
    return Sheet("models", caption, [Bubbles("Models asked", run["models"], run["clients"], shares)], columns=1)


def _plane(run: Document) -> Floats:
    return np.array([run["queries"]["x"], run["queries"]["y"]])


def _cloud(label: str, at: Floats, kind: str) -> Line:
    """Positions ``(2, q)`` as points."""
    return Line(label, at[0], at[1], kind, dots=True)


def points(runs: Runs) -> Iterable[dict[str, Any]]:
    """Queries by position, then shares of models."""
    for run in runs:
        queries = run["queries"]
        for x, y, client, task in zip(*(queries[name] for name in ("x", "y", "client", "task")), strict=True):
            labels = {"client": run["clients"][client], "task": run["tasks"][task]}
            yield {"seed": run["seed"], "what": "query", **labels, "x": x, "y": y}
        for client, shares in zip(run["clients"], run["shares"], strict=True):
            for model, share in zip(run["models"], shares, strict=True):
                yield {"seed": run["seed"], "what": "model", "client": client, "model": model, "share": share}


def summary(runs: Runs) -> Document:
    return {
        f"total variation between a client's mix of {what} and the overall": {
            how: over_seeds(np.array([run["distance"][what][how] for run in runs]))
            for how in ("measured", "even_split")
        }
        for what in ("tasks", "models")
    }


def claims(runs: Runs) -> Sequence[Claim]:
    first = runs[0]
    texts = {
        "tasks": ("Clients have different tasks: their queries are far from an even split.", QUERIES),
        "models": ("Clients use different models, each mostly a few of its own.", MODELS),
    }
    found = []
    for what, (text, section) in texts.items():
        name = f"heterogeneity-{what}"
        if len(first[what]) < 2:
            found.append(untestable(name, text, section, f"the data names only one of the {what}"))
            continue
        if what == "models" and first["protocol"]["model_alpha"] is None:
            found.append(untestable(name, text, section, "in this protocol all clients choose models uniformly"))
            continue
        measured, even = (np.array([run["distance"][what][how] for run in runs]) for how in ("measured", "most_even"))
        compared = (
            f"mix of {what}, total variation between a client and all, mean over clients, against the largest of "
            f"{DRAWS} random splits (on average {spread([run['distance'][what]['even_split'] for run in runs])})"
        )
        found.append(better(name, text, section, measured, even, compared))
    return found


EXPERIMENT = Experiment(
    "heterogeneity",
    "How clients differ in queries and models",
    f"{QUERIES}; {MODELS}",
    Measurement("heterogeneity", run, families=(), effort=4.0, version=2),
    sheets,
    points,
    summary,
    tabulate("heterogeneity", "How far clients' mixes are from the overall, against a random split", summary),
    claims,
)
