"""Heterogeneity of clients: the distribution of their queries, tasks and models."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedrouter.data.partition import ClientData
from fedrouter.evaluations import Embeddings, Evaluations, Floats
from fedrouter.experiments.claims import Claim
from fedrouter.experiments.experiment import Document, Experiment, Measurement, Runs, World
from fedrouter.experiments.sheet import Bubbles, Line, Panel, Sheet

QUERIES, MODELS = "Query Heterogeneity", "Model Heterogeneity"
COMPONENTS = 50
"""Principal components kept before t-SNE: enough to find neighbors, and much faster than all."""
STEPS = 6_000_000
"""Iterations times queries: 1,000 iterations up to 6,000 queries, fewer above, so that a large set takes minutes."""
TASKS = ("one", "two", "three", "four", "five", "six")


def run(world: World) -> Document:
    """Every client's share of models; for the first seed, the queries in a plane."""
    clients = world.clients()
    parts = [part for client in clients for part in (client.train, client.test)]
    everyone = Evaluations.concatenate(parts)
    owner = np.repeat(np.arange(len(parts)) // 2, [part.queries for part in parts])
    # The plane takes minutes and is only looked at, so the first seed's is enough.
    first = world.seed == 0
    x, y = positions(everyone.embeddings, world.seed).round(2).T.tolist() if first else ([], [])
    tasks = everyone.task or ("",) * everyone.queries
    labels = sorted(set(tasks))
    task = np.searchsorted(labels, tasks)
    return {
        "seed": world.seed,
        "protocol": world.protocol.to_json(),
        "clients": [client.name for client in clients],
        "models": list(everyone.pool.names),
        "tasks": labels,
        "queries": {"x": x, "y": y, "client": owner.tolist() if first else [], "task": task.tolist() if first else []},
        "shares": _model_shares(clients).round(4).tolist(),
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


def summary(runs: Runs) -> Document:
    """The largest share that one model has in each client's log, of the first seed."""
    return {"largest share of a model": dict(zip(runs[0]["clients"], map(max, runs[0]["shares"]), strict=True))}


def claims(runs: Runs) -> Sequence[Claim]:
    """None: how clients differ is what the protocol makes them."""
    return []


EXPERIMENT = Experiment(
    "heterogeneity",
    "How clients differ in queries and models",
    f"{QUERIES}; {MODELS}",
    Measurement("heterogeneity", run, by_family=False, effort=4.0, version=3),
    sheets,
    summary,
    claims,
)
