"""`fedrouter show`: what is in a bundle, a log, or a gateway's config."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from fedrouter.cli.output import Json, Voice
from fedrouter.cli.router.verdict import say_models
from fedrouter.errors import BadInput


def show(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A bundle, a table or log of evaluations, or a config.")],
    as_json: Json = False,
) -> None:
    """Show what is in a bundle, a log, or a config; nothing is learned and no text is encoded."""
    from fedrouter.bundle import MANIFEST

    voice = Voice(as_json)
    if not path.exists():
        raise BadInput(f"{path}: no such file or folder")
    if (path / MANIFEST).is_file():
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


def _config(voice: Voice, path: Path) -> dict[str, Any]:
    from fedrouter.errors import MissingExtra

    try:
        from fedrouter.gateway.config_file import read_config
    except ImportError:
        raise MissingExtra("The gateway", "serve") from None
    config = read_config(path)
    models = {
        model.name: {"input_price": model.input_price, "output_price": model.output_price} for model in config.models
    }
    quality = config.routing.kept_quality
    voice.say(f"[bold]{escape(str(path))}[/]: {len(models)} models" + (f", quality {quality:g}" if quality else ""))
    voice.table(
        ["model", "$ per million in", "out"],
        [[escape(name), f"{one['input_price']:g}", f"{one['output_price']:g}"] for name, one in models.items()],
    )
    return {"kind": "config", "path": str(path), "quality": quality, "models": models}
