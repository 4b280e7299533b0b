"""`fedrouter data`: download a benchmark, split a data set into clients' files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedrouter.cli.output import Json, Voice, bars, quoted
from fedrouter.cli.protocol_options import DeviceOption
from fedrouter.errors import BadInput

app = typer.Typer(
    help="Download a published benchmark, or split a data set into clients' files.",
    no_args_is_help=True,
)


@app.command()
def get(
    name: Annotated[str, typer.Argument(metavar="NAME", help="routerbench, routerbench-5shot, sprout or proxrouter.")],
    to: Annotated[Path, typer.Option("--to", help="Folder to download to.")] = Path("data"),
    sha256: Annotated[
        list[str] | None,
        typer.Option("--sha256", help="Expected checksum as HEX or FILE=HEX, where none is known."),
    ] = None,
    unverified: Annotated[
        bool, typer.Option("--unverified", help="Accept files without a known checksum, and print their SHA-256.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Download a benchmark; an interrupted download is resumed, and checksums are verified."""
    from fedrouter.data.download import fetch
    from fedrouter.data.published import benchmark

    voice = Voice(as_json)
    wanted = benchmark(name)
    trusted = _checksums(sha256 or [], [file.name for file in wanted.files])
    voice.say(f"{wanted.title}\n{wanted.page}\nLicense: {wanted.license}.\n")
    with bars() as shown:
        done = [
            fetch(
                wanted,
                file,
                to,
                sha256=trusted.get(file.name),
                unverified=unverified,
                watch=lambda title, have, total: shown.move(title, have, total or have + 1),
            )
            for file in wanted.files
        ]
    for result in done:
        came = "downloaded" if result.fetched else "already there"
        state = "checksum verified" if result.verified else "[yellow]not verified[/]"
        voice.say(f"{result.path}: {came}, {result.size:,} bytes, {state}")
        if not result.verified:
            voice.say(f"  sha256 {result.sha256}")
    data = to / wanted.reads
    voice.next(f"fedrouter simulate --data {quoted(data)}", f"fedrouter data split --data {quoted(data)} --out clients")
    voice.result(
        {
            "name": wanted.name,
            "page": wanted.page,
            "license": wanted.license,
            "data": str(data),
            "files": [
                {
                    "path": str(result.path),
                    "bytes": result.size,
                    "sha256": result.sha256,
                    "verified": result.verified,
                    "fetched": result.fetched,
                }
                for result in done
            ],
        }
    )


@app.command()
def split(
    data: Annotated[Path, typer.Option("--data", help="Table in RouterBench's layout, or an evaluation log.")],
    out: Annotated[Path, typer.Option("--out", help="New folder for the clients' files.")],
    clients: Annotated[int, typer.Option("--clients", help="Number of clients.")] = 10,
    alpha: Annotated[
        float, typer.Option("--alpha", help="Dirichlet concentration over tasks; small: specialized clients.")
    ] = 0.6,
    model_alpha: Annotated[
        str, typer.Option("--model-alpha", help="Dirichlet concentration over the models a client uses, or 'uniform'.")
    ] = "0.45",
    encoder: Annotated[
        str | None, typer.Option("--encoder", help="Encoder of the embeddings; default: the one in the file.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed; the same seed gives the same split.")] = 0,
    device: DeviceOption = "cpu",
    as_json: Json = False,
) -> None:
    """Write the paper's split as files: a log and a test set for each client, and the union of the test sets."""
    from fedrouter.data.partition import partition
    from fedrouter.data.read import read
    from fedrouter.data.split import write_split
    from fedrouter.encoders.device import use_device

    voice = Voice(as_json)
    use_device(device)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BadInput(f"{out}: not empty; choose a new folder for --out")
    with bars() as shown:
        dataset = read(data, encoder=encoder, watch=lambda done, total: shown.move("encoding", done, total))
    parts = partition(dataset.evaluations, clients, alpha, _spread(model_alpha), seed)
    out.mkdir(parents=True, exist_ok=True)
    written, test = write_split(parts, dataset.encoder, out)
    voice.say(f"{dataset.name}: {dataset.evaluations.queries:,} queries, {dataset.encoder.name}\n")
    voice.table(
        ["client", "log rows", "test queries"],
        [[client.name, f"{client.train:,}", f"{client.test:,}"] for client in written],
    )
    empty = [client.name for client in written if client.log is None]
    if empty:
        voice.warn(f"no log for {', '.join(empty)}: this split has no training queries for them")
    voice.say(f"\nLogs and test sets are in {out}, the union of the test sets in {test}")
    log = next((client.log for client in written if client.log), out / "LOG")
    voice.next(
        f"fedrouter learn {quoted(log)} --out {quoted(out / 'alone')}",
        f"fedrouter evaluate {quoted(out / 'alone')} {quoted(test)}",
    )
    voice.result(
        {
            "data": dataset.name,
            "digest": dataset.digest,
            "encoder": dataset.encoder.name,
            "seed": seed,
            "alpha": alpha,
            "model_alpha": model_alpha,
            "models": list(dataset.evaluations.pool.names),
            "clients": [
                {
                    "name": client.name,
                    "train": client.train,
                    "test": client.test,
                    "log": str(client.log) if client.log else None,
                    "own_test": str(client.own_test) if client.own_test else None,
                }
                for client in written
            ],
            "test": str(test),
        }
    )


def _checksums(given: list[str], files: list[str]) -> dict[str, str]:
    """Checksums by file name; one without a name belongs to the only file."""
    found = {}
    for text in given:
        file, _, checksum = text.rpartition("=")
        file = file or (files[0] if len(files) == 1 else "")
        if file not in files:
            raise BadInput(f"--sha256: expected FILE=HEX with one of {', '.join(files)}, got {text!r}")
        if len(checksum) != 64 or set(checksum.lower()) - set("0123456789abcdef"):
            raise BadInput(f"--sha256 for {file}: expected 64 hexadecimal digits, got {checksum!r}")
        found[file] = checksum.lower()
    return found


def _spread(text: str) -> float | None:
    try:
        return None if text == "uniform" else float(text)
    except ValueError:
        raise BadInput(f"--model-alpha: expected a number or 'uniform', got {text!r}") from None
