"""`fedrouter simulate`: the paper's protocol on a data file."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from fedrouter.cli.output import Bars, Json, Voice, bars, quoted
from fedrouter.cli.protocol_options import UNIFORM, DeviceOption, PaperOption, SetOption, read_model_alpha
from fedrouter.engines.local import DEFAULT, OPEN, PRIVACY
from fedrouter.errors import BadInput
from fedrouter.federation.families.registry import FAMILIES

if TYPE_CHECKING:
    from fedrouter.data.read import Dataset
    from fedrouter.experiments.protocol import Comparison, Watch
    from fedrouter.federation.families.family import Settings

Out = Annotated[Path, typer.Option("--out", help="Folder for the report, figures and bundle.")]
Privacy = Annotated[
    str, typer.Option("--privacy", help="; ".join(f"{name}: {what}" for name, what in PRIVACY.items()) + ".")
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="One seed reproduces a run exactly.")]

MARKER = ".fedrouter-run"
"""A file in every folder that a run has created; only such folders are ever replaced, and only by the demo."""


def simulate(
    data: Annotated[Path, typer.Option("--data", help="Table in RouterBench's layout, or an evaluation log.")],
    router: Annotated[
        str, typer.Option("--router", help=f"Family of routers: {', '.join(FAMILIES)}; several with commas, or all.")
    ] = "bayes",
    clients: Annotated[int, typer.Option("--clients", help="Number of clients that share the data.")] = 10,
    alpha: Annotated[float, typer.Option("--alpha", help="Dirichlet over tasks; small: specialized clients.")] = 0.6,
    model_alpha: Annotated[
        str, typer.Option("--model-alpha", help="Dirichlet over the models a client uses, or 'uniform'.")
    ] = "0.45",
    rounds: Annotated[int, typer.Option("--rounds", help="Rounds of federated averaging (MLP).")] = 5,
    participation: Annotated[
        float, typer.Option("--participation", help="Share of clients per round, at least three (MLP).")
    ] = 0.6,
    changes: SetOption = None,
    paper: PaperOption = False,
    encoder: Annotated[
        str | None, typer.Option("--encoder", help="Whose embeddings to use; default: those in the file.")
    ] = None,
    device: DeviceOption = "cpu",
    privacy: Privacy = DEFAULT,
    seed: Seed = 0,
    out: Out = Path("out/simulate"),
    as_json: Json = False,
) -> None:
    """Run the paper's protocol on a data file: learn federated, local and centralized routers, and compare them."""
    from fedrouter.data.partition import partition
    from fedrouter.data.read import read
    from fedrouter.encoders.device import use_device
    from fedrouter.federation.families.choice import chosen_settings, read_changes

    voice = Voice(as_json)
    settings = chosen_settings(router, rounds, participation, read_changes(changes or ()), paper)
    if paper:
        if privacy not in (DEFAULT, OPEN):
            raise BadInput(f"--paper: the paper protects nothing, so it does not go with --privacy {privacy}")
        privacy = OPEN
    concentration = read_model_alpha(model_alpha)
    spread = None if concentration == UNIFORM else float(concentration)
    if privacy not in PRIVACY:
        raise BadInput(f"--privacy: expected {', '.join(PRIVACY)}, got {privacy!r}")
    use_device(device)
    prepare_folder(out)
    with bars() as shown:
        dataset = read(data, encoder=encoder, watch=lambda done, total: shown.move("encoding", done, total))
        split = partition(dataset.evaluations, clients, alpha, spread, seed)
        comparison = compared(split, settings, seed, shown, privacy)
    command = (
        f"fedrouter simulate --data {data} --router {router} --clients {clients} --alpha {alpha} "
        f"--model-alpha {model_alpha} --rounds {rounds} --participation {participation} "
        f"--encoder {dataset.encoder.name} --seed {seed} --out {out}"
        + "".join(f" --set {change}" for change in changes or ())
        + (f" --device {device}" if device != "cpu" else "")
        + (" --paper" if paper else f" --privacy {privacy}" if privacy != DEFAULT else "")
    )
    _conclude(voice, comparison, dataset, seed, command, out)


def prepare_folder(out: Path, replace: bool = False) -> None:
    """Create the output folder before any work; with ``replace`` an earlier run's is replaced, others never."""
    from fedrouter.report.style import require_matplotlib

    require_matplotlib()
    left = (path for path in out.iterdir() if path.name != MARKER) if out.is_dir() else [out] if out.exists() else []
    if any(left):  # a run that failed before it wrote anything leaves only the marker
        if not replace:
            raise BadInput(f"{out}: not empty; choose another --out")
        if not (out / MARKER).exists():
            raise BadInput(f"{out}: not empty, and not a folder that fedrouter made; choose another --out")
        shutil.rmtree(out)
    out.mkdir(parents=True, exist_ok=True)
    (out / MARKER).touch()


def compared(
    split: Any, settings: Mapping[str, Settings], seed: int, shown: Bars, privacy: str = DEFAULT
) -> Comparison:
    """The comparison of a split's clients, with a bar for each way and family."""
    from fedrouter.experiments.protocol import compare
    from fedrouter.federation.federation import Callback, Progress

    def watch(way: str, name: str) -> Callback:
        runs = sum(1 for client in split if len(client.train)) if way == "local" else 1
        finished = 0

        def follow(progress: Progress) -> None:
            nonlocal finished
            shown.move(f"{name} {way}", finished + progress.step / progress.steps, runs)
            finished += progress.step == progress.steps

        return follow

    follow: Watch = watch
    return compare(split, settings, seed, follow, privacy)


def written(comparison: Comparison, dataset: Dataset, seed: int, command: str, out: Path) -> dict[str, Any]:
    """Write bundles and report; what happened as JSON, with their paths."""
    from fedrouter.bundle import Provenance, save
    from fedrouter.report.comparison import summary, write_report

    bundles = {}
    for name, router in comparison.routers.items():
        rows_by_client = {client.name: len(client.train) for client in comparison.clients}
        settings = comparison.settings["federated"][name]
        provenance = Provenance.of_run(
            dataset.name, dataset.digest, seed, rows_by_client, settings, simulated=dataset.simulated
        )
        bundles[name] = str(save(out / "bundles" / name, router, dataset.encoder, provenance))
    report = write_report(comparison, dataset, seed, command, out)
    paths = {"bundle": next(iter(bundles.values())), "bundles": bundles, "report": str(report)}
    return summary(comparison, dataset, seed) | paths


def _conclude(voice: Voice, comparison: Comparison, dataset: Dataset, seed: int, command: str, out: Path) -> None:
    """Write bundles and report; print the table, the next steps and the JSON."""
    from fedrouter.encoders import OFFLINE, STATIC
    from fedrouter.federation.families.registry import title
    from fedrouter.report.comparison import HEADER, SHORT, headline, rows

    document = written(comparison, dataset, seed, command, out)
    voice.say("")
    for name, verdict in comparison.verdicts.items():
        voice.verdict(verdict.sentence(), title(name))
    voice.table([HEADER[index] for index in SHORT], [[row[index] for index in SHORT] for row in rows(comparison)])
    voice.say("")
    for name in comparison.routers:
        voice.say(headline(comparison, name))
    for warning in comparison.warnings:
        voice.warn(warning)
    readable = dataset.encoder.name in (STATIC, OFFLINE)
    if not readable:
        voice.say(
            f"\nTo read text, this router needs the encoder {escape(dataset.encoder.name)}, whose embeddings are in "
            f"the file; one learned with --encoder {STATIC} needs nothing."
        )
    ask = f'fedrouter route {quoted(document["bundle"])} "Write a SQL query that counts orders by month."'
    judge = f"fedrouter evaluate {quoted(document['bundle'])} LOG"
    voice.next(f"open {quoted(document['report'])}", ask if readable else judge)
    voice.result(document)
