"""`fedrouter data`: download a benchmark, split a data set into clients' files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedrouter.cli.output import Json, Voice, bars, quoted
from fedrouter.cli.protocol_options import UNIFORM, read_model_alpha
from fedrouter.errors import BadInput

app = typer.Typer(
    help="Download a published benchmark, or split a data set into clients' files.",
    no_args_is_help=True,
)


@app.command()
def get(
    name: Annotated[str, typer.Argument(metavar="NAME", help="routerbench or routerbench-5shot.")],
    to: Annotated[Path, typer.Option("--to", help="Folder to download to.")] = Path("data"),
    as_json: Json = False,
) -> None:
    """Download a benchmark; an interrupted download is resumed, and checksums are verified."""
    from fedrouter.data.download import fetch
    from fedrouter.data.published import benchmark

    voice = Voice(as_json)
    wanted = benchmark(name)
    voice.say(f"{wanted.title}\n{wanted.page}\nLicense: {wanted.license}.\n")
    with bars() as shown:
        done = fetch(wanted, to, watch=shown.move)
    came = "downloaded" if done.fetched else "already there"
    voice.say(f"{done.path}: {came}, {done.size:,} bytes, checksum verified")
    voice.next(
        f"fedrouter simulate --data {quoted(done.path)}",
        f"fedrouter data split --data {quoted(done.path)} --out clients",
    )
    voice.result(
        {
            "name": wanted.name,
            "page": wanted.page,
            "license": wanted.license,
            "data": str(done.path),
            "bytes": done.size,
            "sha256": done.sha256,
            "fetched": done.fetched,
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
    seed: Annotated[int, typer.Option("--seed", min=0, help="The same seed gives the same split.")] = 0,
    as_json: Json = False,
) -> None:
    """Write the paper's split as files: a log and a test set for each client, and the union of the test sets."""
    from fedrouter.data.partition import partition
    from fedrouter.data.read import read
    from fedrouter.data.split import write_split

    voice = Voice(as_json)
    spread = read_model_alpha(model_alpha)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BadInput(f"{out}: not empty; choose a new folder for --out")
    with bars() as shown:
        dataset = read(data, watch=lambda done, total: shown.move("encoding", done, total))
    parts = partition(dataset.evaluations, clients, alpha, None if spread == UNIFORM else float(spread), seed)
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
