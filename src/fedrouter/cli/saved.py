"""A bundle opened together with the data it is to be used on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fedrouter.cli.output import bars
from fedrouter.errors import BadInput

if TYPE_CHECKING:
    from fedrouter.bundle import Bundle
    from fedrouter.data.read import Dataset


def open_with_data(bundle: Path, data: Path) -> tuple[Bundle, Dataset]:
    """Data read with the bundle's own encoder and pool."""
    from fedrouter.bundle import load
    from fedrouter.data.read import read

    saved = load(bundle)
    with bars() as shown:
        dataset = read(
            data,
            encoder=saved.encoder.name,
            pool=saved.router.pool,
            watch=lambda done, total: shown.move("encoding", done, total),
        )
    if dataset.encoder.dimension != saved.encoder.dimension:
        raise BadInput(
            f"{data}: its embeddings have width {dataset.encoder.dimension}, but {bundle} was trained on "
            f"{saved.encoder.name} of width {saved.encoder.dimension}"
        )
    return saved, dataset
