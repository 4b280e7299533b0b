"""Options that several commands share: those of the paper's protocol, and the device."""

from __future__ import annotations

from typing import Annotated

import typer

from fedrouter.errors import BadInput

SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FAMILY.SETTING=VALUE", help="Change a family's setting, repeatable."),
]
PaperOption = Annotated[
    bool, typer.Option("--paper", help="K-Means and MLP as printed in the paper: K_global = 20, nothing protected.")
]
DeviceOption = Annotated[
    str, typer.Option("--device", help="Where networks are trained and texts are encoded: cpu, cuda or auto.")
]
UNIFORM = "uniform"
"""The value of ``--model-alpha`` with which clients use all models alike."""


def read_model_alpha(text: str) -> float | str:
    """The value of ``--model-alpha``: a concentration, or :data:`UNIFORM`."""
    if text == UNIFORM:
        return UNIFORM
    try:
        return float(text)
    except ValueError:
        raise BadInput(f"--model-alpha: expected a number or {UNIFORM!r}, got {text!r}") from None
