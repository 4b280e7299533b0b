"""`fedrouter show`: what is in a bundle, a log, a gateway's config or its store."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from fedrouter.cli.output import Json, Voice, quoted
from fedrouter.cli.router.saved import is_store
from fedrouter.cli.router.verdict import say_models
from fedrouter.errors import BadInput


def show(
    place: Annotated[
        str, typer.Argument(metavar="PATH", help="A bundle, a log, a gateway's config, or its store (sqlite:///PATH).")
    ],
    as_json: Json = False,
) -> None:
    """Show what is in a bundle, a log, a config or a store; a config is validated."""
    from fedrouter.bundle import MANIFEST

    voice, path = Voice(as_json), Path(place)
    if is_store(place):
        voice.result(_store(voice, place))
    elif not path.exists():
        raise BadInput(f"{path}: no such file or folder")
    elif (path / MANIFEST).is_file():
        voice.result(_bundle(voice, path))
    elif path.suffix in (".yaml", ".yml"):
        voice.result(_config(voice, path))
    else:
        voice.result(_log(voice, path))


def _bundle(voice: Voice, path: Path) -> dict[str, Any]:
    from fedrouter.bundle import load

    saved = load(path)
    manifest, router = saved.manifest, saved.router
    counts = router.rows_by_model()
    rows = [None] * len(router.pool) if counts is None else [int(count) for count in counts]
    voice.say(f"[bold]{escape(str(path))}[/]: {router.family} router, version {saved.version}, {saved.encoder}")
    voice.say(f"learned from {manifest['data']}" + (" (simulated)" if manifest["simulated"] else ""))
    if manifest["parent"]:
        voice.say(f"made from {manifest['parent']}\nby {_short(manifest['change'])}")
    voice.say(f"digest {manifest['digest']}\n")
    voice.table(
        ["model", "rows"],
        [
            [escape(name), "" if count is None else f"{count:,}"]
            for name, count in zip(router.pool.names, rows, strict=True)
        ],
    )
    voice.say("")
    voice.table(["member", "rows"], [[escape(name), f"{entry['rows']:,}"] for name, entry in saved.clients.items()])
    return {
        "kind": "bundle",
        "path": str(path),
        "rows": dict(zip(router.pool.names, rows, strict=True)),
        "manifest": dict(manifest),
    }


def _short(change: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in change.items() if name != "tradeoffs" and value)


def _log(voice: Voice, path: Path) -> dict[str, Any]:
    from fedrouter.data.overview import overview

    found = overview(path)
    embeddings = ", ".join(found.embeddings) or "none, texts are encoded"
    voice.say(f"[bold]{escape(str(path))}[/]: {found.rows:,} rows; embeddings: {escape(embeddings)}\n")
    say_models(voice, found.models)
    return {
        "kind": "log",
        "path": str(path),
        "rows": found.rows,
        "embeddings": list(found.embeddings),
        "models": [asdict(each) for each in found.models],
    }


def _store(voice: Voice, url: str) -> dict[str, Any]:
    """The bundles that the operator put into service, on top of what gateways learn."""
    from fedrouter.store.store import Store

    with Store.open(url, create=False) as opened:
        rows = {"current": opened.current(), "previous": opened.previous()}
    for name, row in rows.items():
        voice.say(f"{name}: {escape(row.path) if row else 'none; gateways serve what they learn'}")
    return {"kind": "store", "path": url} | {name: row.to_json() if row else None for name, row in rows.items()}


def _config(voice: Voice, path: Path) -> dict[str, Any]:
    """Models and prices of a config; if it is not valid, every problem with its line."""
    from fedrouter.errors import MissingExtra

    try:
        from fedrouter.gateway.config_file import BadConfig, read_config
    except ImportError:
        raise MissingExtra("The gateway", "serve") from None
    try:
        config = read_config(path)
    except BadConfig as error:
        voice.say(escape(str(error)))  # extras are named in brackets
        wrong = [{"line": p.line, "field": p.field, "message": p.message} for p in error.problems]
        voice.result({"kind": "config", "path": str(path), "ok": False, "problems": wrong})
        raise typer.Exit(2) from None
    models = {
        model.name: {"input_price": model.input_price, "output_price": model.output_price} for model in config.models
    }
    quality = config.routing.kept_quality
    voice.say(
        f"[bold]{escape(str(path))}[/]: valid; {len(models)} models, default {escape(config.default_model)}"
        + (f", quality {quality:g}" if quality else "")
    )
    voice.table(
        ["model", "$ per million in", "out"],
        [[escape(name), f"{one['input_price']:g}", f"{one['output_price']:g}"] for name, one in models.items()],
    )
    voice.next(f"fedrouter serve --config {quoted(path)}")
    return {"kind": "config", "path": str(path), "ok": True, "problems": [], "quality": quality, "models": models}
