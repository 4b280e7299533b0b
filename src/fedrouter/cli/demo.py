"""`fedrouter demo`: the whole story in the simulated world, with what it measured at each step."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from fedrouter.cli.output import Json, Voice, bars, quoted
from fedrouter.cli.simulate import compared, prepare_folder, written

if TYPE_CHECKING:
    from fedrouter.experiments.protocol import Comparison

SEED = 0
FAMILY = "bayes"


def demo(
    out: Annotated[Path, typer.Option("--out", help="Folder for report, figures and bundle.")] = Path("out/demo"),
    as_json: Json = False,
) -> None:
    """Show the whole story on this machine: logs, alone against together, what left, the router."""
    from fedrouter.data.partition import partition
    from fedrouter.data.simulator import simulated_world
    from fedrouter.experiments.choice import chosen_settings

    voice = Voice(as_json)
    prepare_folder(out, replace=True)
    dataset = simulated_world()
    split = partition(dataset.evaluations, seed=SEED)
    voice.say("[yellow]Simulated:[/] fictional models, random accuracy and cost.")
    _step(voice, 1, "The logs: ten organizations, each with its own kind of queries and its own preferred models")
    _logs(voice, split)
    with bars() as shown:
        comparison = compared(split, chosen_settings(FAMILY), SEED, shown)
    document = written(comparison, dataset, SEED, f"fedrouter demo --out {quoted(out)}", out)
    _step(voice, 2, "Alone, and together")
    _gain(voice, comparison)
    _step(voice, 3, "What left each organization")
    left = _what_left(voice, comparison)
    voice.say(f"\nPictures and tables: {document['report']}")
    voice.next(
        f'fedrouter route {quoted(document["bundle"])} "Write a SQL query that counts orders by month."',
        "fedrouter serve --demo",
    )
    voice.result(document | {"left": left})


def _step(voice: Voice, number: int, title: str) -> None:
    voice.say(f"\n[bold]{number}. {title}[/]\n")


def _logs(voice: Voice, split: Any) -> None:
    def favorite(client: Any) -> tuple[str, float]:
        asked = np.bincount(client.train.model, minlength=len(client.train.pool))
        return client.train.pool.names[int(asked.argmax())], float(asked.max() / asked.sum())

    voice.table(
        ["organization", "rows", "models", "most used"],
        [
            [
                client.name,
                f"{len(client.train):,}",
                str(len(np.unique(client.train.model))),
                "{} ({:.0%})".format(*favorite(client)),
            ]
            for client in split
            if len(client.train)
        ],
        wrapped=("most used",),
    )


def _gain(voice: Voice, comparison: Comparison) -> None:
    """Accuracy of each way of learning, on all queries and on each organization's own."""
    from fedrouter.report.comparison import own_mean

    def cells(title: str, way: str) -> list[str]:
        found = comparison.curves[way][FAMILY].measures()
        return [title, f"{found['global'].aiq:.3f}", f"{found['own'].aiq:.3f}"]

    rows = [
        cells("each alone (mean)", "local"),
        cells("together, with noise", "federated"),
        ["together, then made personal", "", f"{own_mean(comparison, FAMILY).aiq:.3f}"],
        cells("all logs in one place", "centralized"),
        ["best coin toss, with hindsight", f"{comparison.baselines['mix'].measures.aiq:.3f}", ""],
    ]
    voice.table(["mean accuracy over all budgets", "all queries", "own queries"], rows)
    voice.say(f"\nVerdict on the router learned together: {comparison.verdicts[FAMILY].sentence()}")


def _what_left(voice: Voice, comparison: Comparison) -> dict[str, Any]:
    """The size and noise of a release."""
    from fedrouter.federation.noise import Noise
    from fedrouter.routers.bayes import BayesRouter

    router = comparison.routers[FAMILY]
    assert isinstance(router, BayesRouter)
    assert router.total is not None
    numbers, noise = router.total.vector().size, Noise()
    voice.say(
        f"One vector of {numbers:,} numbers ({numbers * 8 / 1000:.0f} KB), once: sums over all its rows, with noise. "
        f"No query, no embedding and no score of its own.\n"
        f"For each query: ε = {noise.epsilon:g}, δ = {noise.delta:g}. Only the total of all ten was used."
    )
    return {"numbers": numbers, "epsilon": noise.epsilon, "delta": noise.delta}
