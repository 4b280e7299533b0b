"""`fedrouter reproduce`: the paper's figures, tables and claims, measured on a data file."""

from __future__ import annotations

import os
import re
import textwrap
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from fedrouter.cli.output import Json, Voice, bars, quoted
from fedrouter.cli.protocol_options import DeviceOption, PaperOption, SetOption
from fedrouter.federation.families.registry import FAMILIES

NAMES = (
    "global",
    "own",
    "centralized",
    "new-models",
    "new-clients",
    "personalization",
    "encoders",
    "heterogeneity",
    "theorems",
)
"""The names of the registry, which would be slow to import for a line of help."""
LISTED = f"{', '.join(NAMES)}; or all."


def reproduce(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help=LISTED)],
    data: Annotated[Path, typer.Option("--data", help="Table in RouterBench's layout, every model's answer known.")],
    seeds: Annotated[
        int | None,
        typer.Option(
            "--seeds",
            help="Number of seeds; a larger number later adds to a run. Default: 20, or 10 to train a network.",
        ),
    ] = None,
    protocol: Annotated[
        str,
        typer.Option(
            "--protocol", metavar="NAME", help="The paper's settings for a data set: routerbench, proxrouter."
        ),
    ] = "routerbench",
    router: Annotated[
        list[str] | None,
        typer.Option(
            "--router",
            metavar="FAMILY",
            help=f"Families to compare, repeatable or with commas: {', '.join(FAMILIES)}; default: mlp,kmeans.",
        ),
    ] = None,
    settings: SetOption = None,
    paper: PaperOption = False,
    rounds: Annotated[int, typer.Option("--rounds", help="Rounds of federated averaging (MLP).")] = 20,
    encoder: Annotated[
        str | None, typer.Option("--encoder", help="Whose embeddings to use; default: those in the file.")
    ] = None,
    encode: Annotated[
        bool,
        typer.Option("--encode", help="Compute missing embeddings, to compare encoders; slow, then cached."),
    ] = False,
    device: DeviceOption = "cpu",
    jobs: Annotated[int | None, typer.Option("--jobs", help="Number of processes; default: one per core.")] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder for the results; a stopped run is resumed there.")] = Path(
        "out/reproduce"
    ),
    as_json: Json = False,
) -> None:
    """Measure the paper's figures, tables and claims on a data file.

    docs/paper.md says what the paper leaves open.
    """
    from fedrouter.experiments.experiment import PAPER_FAMILIES
    from fedrouter.experiments.figures.encoders import make_missing
    from fedrouter.experiments.paper_protocols import protocol_named
    from fedrouter.experiments.registry import EXPERIMENTS, chosen
    from fedrouter.experiments.runner import complete, seeds_of
    from fedrouter.experiments.runner import reproduce as measure
    from fedrouter.federation.families.choice import as_printed, named_families, read_changes
    from fedrouter.report.reproduction import Origin, counted, write_claims, write_experiment

    voice = Voice(as_json)
    asked = [experiment.name for experiment in chosen(names)]
    families = named_families(router) if router else PAPER_FAMILIES
    changes = read_changes(settings or ())
    if paper:
        changes = as_printed(families, changes)
    with bars() as shown:

        def watch(done: int, total: int, ended: str) -> None:
            shown.move("measuring", done, total)
            if ended:
                voice.say(f"measured {ended}")

        def encoding(done: int, total: int) -> None:
            shown.move("encoding", done, total)

        if encode:
            make_missing(data, encoding)
        workers = os.cpu_count() or 1 if jobs is None else jobs
        try:
            outcome = measure(
                names,
                data,
                encoder,
                seeds,
                rounds,
                out,
                workers,
                watch,
                encode,
                encoding,
                families,
                protocol_named(protocol),
                changes,
                device,
            )
        except KeyboardInterrupt:
            voice.warn(f"stopped; finished measurements are kept, and the same command resumes from there ({out})")
            raise
    # Results of earlier commands are reported again, so that the claims are those of the whole folder.
    earlier = [name for name in EXPERIMENTS if (out / name / f"{name}.json").exists()]
    runs = complete(chosen(asked + earlier), seeds, outcome.plan, families)
    shown_names = "all" if set(asked) == set(EXPERIMENTS) else " ".join(runs)
    manifest = outcome.manifest
    command = (
        f"fedrouter reproduce {shown_names} --data {data.name}{f' --seeds {seeds}' if seeds else ''} --rounds {rounds} "
        f"--encoder {manifest['encoder']} --protocol {protocol}{' --encode' * encode}"
        + (f" --router {','.join(families)}" if router else "")
        + "".join(f" --set {change}" for change in settings or ())
        + (" --paper" if paper else "")
        + (f" --device {device}" if device != "cpu" else "")
    )
    counts = {name: seeds or seeds_of(name) for name in families}
    origin = Origin(manifest["data"], manifest["encoder"], counts, manifest, command)
    results = [write_experiment(EXPERIMENTS[name], documents, origin, out) for name, documents in runs.items()]
    claims = [claim for result in results for claim in result.claims]
    page = write_claims(results, origin, out) if results else None

    voice.say("")
    voice.table(
        ["claim", "verdict", "measured"], [[claim.name, claim.verdict, _short(claim.measured)] for claim in claims]
    )
    voice.say(f"\n{counted(claims)}. {len(outcome.measured)} measured now, {len(outcome.found)} found in {out}.")
    for unit, problem in outcome.failed.items():
        voice.warn(escape(f"{unit}: {problem}"))
    for name in asked:
        if name not in runs:
            voice.warn(f"{name}: not complete, so nothing was written; the same command measures what is missing")
    if page:
        voice.next(f"open {quoted(page)}", f"ls {quoted(results[0].folder)}")
    voice.result(
        {
            **manifest,
            "seeds": counts,
            "out": str(out),
            "experiments": {
                result.experiment.name: {"folder": str(result.folder), "summary": result.summary} for result in results
            },
            "claims": [claim.to_json() for claim in claims],
            "measured": [str(unit) for unit in outcome.measured],
            "found": [str(unit) for unit in outcome.found],
            "missing": outcome.missing,
            "failed": {str(unit): problem for unit, problem in outcome.failed.items()},
            "page": page and str(page),
        }
    )
    if outcome.failed:
        raise typer.Exit(1)


def _short(measured: str) -> str:
    """The first numbers of a measurement, without spreads: a terminal has no room for more."""
    numbers = re.sub(r" ± [0-9.]+", "", measured.split(": ", 1)[-1]).split(";")[0]
    return textwrap.shorten(numbers, 25, placeholder=" …")
