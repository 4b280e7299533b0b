"""`fedrouter coverage`: what a client's own log covers, and what joining a federation would add."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedrouter.cli.output import Json, Voice, bars, quoted
from fedrouter.cli.router.saved import verdict_on
from fedrouter.errors import BadInput, MissingExtra

if TYPE_CHECKING:
    from fedrouter.bundle import Bundle
    from fedrouter.coverage import Coverage, Joining
    from fedrouter.data.read import Dataset


def coverage(
    data: Annotated[Path, typer.Option("--data", help="Evaluation log: prompt or embedding, model, accuracy, cost.")],
    bundle: Annotated[
        Path | None, typer.Option("--bundle", help="A federation's router, to see what joining would add.")
    ] = None,
    federation: Annotated[
        Path | None,
        typer.Option(
            "--federation",
            metavar="DIR",
            help="Your state directory as an enrolled client: fetch the accepted router from the coordinator.",
        ),
    ] = None,
    client: Annotated[
        str | None,
        typer.Option("--client", help="Your name in the federation, to check whether it is in the bundle."),
    ] = None,
    regions: Annotated[int, typer.Option("--regions", help="Most regions of your own queries.")] = 20,
    out: Annotated[Path, typer.Option("--out", help="Folder for the page, the figure and coverage.json.")] = Path(
        "out/coverage"
    ),
    as_json: Json = False,
) -> None:
    """Show which (region, model) cells your own log covers and what joining would add; nothing of it is sent."""
    from fedrouter.bundle import load
    from fedrouter.report.coverage import write_page
    from fedrouter.report.coverage_map import draw
    from fedrouter.report.style import require_matplotlib, write

    voice = Voice(as_json)
    if regions < 1:
        raise BadInput(f"--regions: expected at least 1, got {regions}")
    require_matplotlib()
    if federation is not None:
        bundle, client = _fetched(federation, bundle, client)
    saved = load(bundle) if bundle is not None else None
    dataset = _read(data, saved)
    document, own, joining = _measure(dataset, saved, client, regions)
    out.mkdir(parents=True, exist_ok=True)
    figure = draw(own, joining, f"{dataset.name}; regions are {document['regions_from']}")
    document["figures"] = [str(path) for path in write(figure, out / "coverage")]
    command = f"fedrouter coverage --data {data} --regions {regions} --out {out}"
    command += "".join(f" --{name} {value}" for name, value in (("bundle", bundle), ("client", client)) if value)
    document["page"] = str(write_page(document, own, figure, command, out))
    (out / "coverage.json").write_text(json.dumps(document, indent=2, allow_nan=False) + "\n")
    _say(voice, document, own)
    steps = [f"open {quoted(document['page'])}"]
    if document["bundle"] is None:
        steps.append(f"fedrouter coverage --data {quoted(data)} --bundle BUNDLE")
        steps.append(f"fedrouter coverage --data {quoted(data)} --federation CLIENT_DIR")
    elif document["took_part"] is False and federation is not None:
        steps.append(f"fedrouter federation client {quoted(federation)} --log {quoted(data)}")
        steps.append(f"fedrouter federation run COORDINATOR_DIR --join {client} --bundle BUNDLE   (the coordinator)")
    elif document["took_part"] is False:
        steps.append(f"fedrouter client join {quoted(bundle)} --client {quoted(client, '=', data)} --out BUNDLE")
    elif document["errors"] is not None:
        steps.append(f"fedrouter personalize {quoted(bundle)} --data {quoted(data)} --out BUNDLE")
    voice.next(*steps)
    voice.result(document)


def _fetched(federation: Path, bundle: Path | None, client: str | None) -> tuple[Path, str]:
    """The router that a federation serves, from its coordinator, and the name of the client that fetched it.

    A client need not have taken part: whoever is enrolled may see what the others' totals cover.
    """
    from fedrouter.deployment.delivery.pull import pull
    from fedrouter.deployment.state.directories import open_client

    if bundle is not None or client is not None:
        raise BadInput("--federation: names the client and fetches the router; expected without --bundle and --client")
    directory = open_client(federation)
    found = pull(directory)
    if found is None:
        raise BadInput(f"{directory.config().coordinator}: no router was accepted yet")
    return found, directory.config().name


def _read(data: Path, saved: Bundle | None) -> Dataset:
    """The log with its own models; text is encoded with the bundle's encoder."""
    from fedrouter.data.read import read

    with bars() as shown:
        return read(
            data,
            encoder=None if saved is None else saved.encoder.name,
            watch=lambda done, total: shown.move("encoding", done, total),
        )


def _measure(
    dataset: Dataset, saved: Bundle | None, client: str | None, regions: int
) -> tuple[dict[str, Any], Coverage, Joining | None]:
    """Everything to report, as JSON and as objects for the figure."""
    from fedrouter.coverage import cover, join, own_regions, partners
    from fedrouter.pool import ModelPool

    evaluations, shared, warnings = dataset.evaluations, None, []
    if saved is not None and saved.encoder.dimension != dataset.encoder.dimension:
        warnings.append(
            f"the log's embeddings have width {dataset.encoder.dimension}, the bundle expects "
            f"{saved.encoder.name} of width {saved.encoder.dimension}: the bundle is left out"
        )
        saved = None
    if saved is not None:
        known = saved.router.pool
        extra = [model for model in evaluations.pool if model.name not in known]
        evaluations = evaluations.over(ModelPool([*known, *extra]))
        shared = saved.router.cells()
    own = cover(evaluations, own_regions(evaluations, regions) if shared is None else shared.centres)
    judged: dict[str, Any] = {"verdict": "none; it takes a bundle (--bundle)", "verdicts": {}}
    if saved is not None:
        judged, optimistic = verdict_on(saved, dataset)
        warnings += optimistic
    took_part = None if saved is None else _took_part(saved, dataset, client)
    joining = None if shared is None or saved is None else join(own, saved.router.pool, shared, took_part)
    document = {
        "data": dataset.name,
        "encoder": dataset.encoder.name,
        "bundle": None if saved is None else str(saved.path),
        "took_part": took_part,
        "regions_from": "clusters of your own queries" if shared is None else "the bundle's centres",
        **own.to_json(),
        "joining": None if joining is None else joining.to_json(),
        "joining_told": _remarks(saved, joining),
        **judged,
        "partners": partners(own) if saved is None else None,
        "errors": None if saved is None else _errors(saved, dataset, warnings),
        "warnings": warnings,
    }
    return document, own, joining


def _took_part(saved: Bundle, dataset: Dataset, client: str | None) -> bool | None:
    """Whether these rows are in the bundle, by the file's digest or the client's name; None if unknown."""
    if saved.manifest["data_digest"] == dataset.digest:
        return True
    return None if client is None else client in saved.clients


def _errors(saved: Bundle, dataset: Dataset, warnings: list[str]) -> dict[str, Any] | None:
    """Errors on the log's rows of a local router and of the bundle's; None if there is nothing to compare."""
    from fedrouter.coverage import errors
    from fedrouter.federation.families.registry import family

    router = saved.router.federated_router()
    if not len(dataset.evaluations.over(router.pool)):
        warnings.append("the log has no row of any of the bundle's models, so errors cannot be compared")
        return None
    settings = family(router.family).settings.from_json(saved.settings_for(router.family))
    try:
        with bars() as shown:
            shown.move("cross-validation", 0, 1)
            return errors(dataset.evaluations, router, router.family, settings)
    except MissingExtra as missing:
        warnings.append(f"errors on your own rows were not compared: {missing}")
        return None


def _remarks(saved: Bundle | None, joining: Joining | None) -> list[str]:
    """Sentences that complete the tables."""
    if saved is None:
        return ["Without a bundle of a federation (--bundle), the gain from joining can only be projected:"]
    if joining is None:
        return [f"A {saved.router.family} router has no regions, so cells cannot be compared; errors can, below."]
    empty = int((joining.own.count == 0).sum())
    remarks = [f"Of {empty:,} empty cells, {joining.filled:,} have rows in the federation."]
    if joining.learned:
        remarks.append(f"Models you never used that the federation knows: {', '.join(joining.learned)}.")
    only = [name for name in joining.own.pool.names if name not in saved.router.pool]
    if only:
        remarks.append(f"Models only you know: {', '.join(only)}.")
    return remarks


def _say(voice: Voice, found: dict[str, Any], own: Coverage) -> None:
    """A summary for the terminal; names come from a file, so they are escaped."""
    from rich.markup import escape

    from fedrouter.report import coverage as report

    voice.verdict(found["verdict"])
    size = f"{own.rows:,} rows, {found['queries']:,} queries, {len(own.count)} regions ({found['regions_from']})"
    voice.say(f"{escape(found['data'])}: {size}\n")
    voice.table(report.MODEL_HEADER, [[escape(cell) for cell in row] for row in report.model_rows(own)])
    voice.say(f"\n{report.headline(found)}\n{report.precision(found)}\n")
    if found["joining"] is not None:
        voice.table(report.JOINING_HEADER, report.joining_rows(found["joining"]))
    for sentence in found["joining_told"]:
        voice.say(escape(sentence))
    if found["partners"] is not None:
        voice.table(report.PARTNER_HEADER, report.partner_rows(found["partners"]))
        voice.say(report.ASSUMPTION)
    if found["errors"] is not None and found["errors"]["rows"]:
        voice.say(f"\n{report.verdict(found['errors'])}")
        if found["took_part"] in report.OPTIMISTIC:
            voice.say(report.OPTIMISTIC[found["took_part"]])
    for warning in found["warnings"]:
        voice.warn(escape(warning))
