"""`fedrouter personalize`: makes a client's personal router from the federated one and its own log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedrouter.cli.output import BundlePath, Json, Voice, quoted
from fedrouter.cli.protocol_options import DeviceOption
from fedrouter.cli.router.grow import Out, Seed, Test
from fedrouter.cli.router.saved import areas_before_and_after, read_for
from fedrouter.errors import BadInput
from fedrouter.federation.families.registry import FAMILIES


def personalize(
    bundle: BundlePath,
    data: Annotated[Path, typer.Option("--data", help="The client's own evaluation log; it stays here.")],
    out: Out,
    router: Annotated[
        str | None,
        typer.Option("--router", help=f"Family of the local half: {', '.join(FAMILIES)}; default: the bundle's."),
    ] = None,
    paper: Annotated[
        bool, typer.Option("--paper", help="The paper's weights: by errors on the training rows themselves.")
    ] = False,
    device: DeviceOption = "cpu",
    seed: Seed = 0,
    test: Test = None,
    as_json: Json = False,
) -> None:
    """Make a personal router from a federated one: per model, the half with the smaller error gets more weight."""
    from fedrouter.bundle import load, refuse_existing, save
    from fedrouter.encoders.device import use_device
    from fedrouter.federation.families import registry
    from fedrouter.personalization import personalize

    voice = Voice(as_json)
    use_device(device)
    refuse_existing(out)
    saved = load(bundle)
    if saved.router.federated_router() is not saved.router:
        raise BadInput(f"{bundle}: already a personal router; personalize the federated one it was made from")
    log = read_for(saved, data)
    family = router or saved.router.family
    settings = registry.family(family).settings.from_json(saved.settings_for(family))
    personal = personalize(saved.router, log.evaluations, family, settings, seed, paper=paper)
    areas = areas_before_and_after(voice, saved, personal, test)
    rows = log.evaluations.over(personal.pool)
    counts = [int((rows.model == index).sum()) for index in range(len(personal.pool))]
    voice.table(
        ["model", "own rows", "weight of own accuracy", "of own cost"],
        [
            [name, f"{count:,}", f"{accuracy:.2f}", f"{cost:.2f}"]
            for name, count, accuracy, cost in zip(
                personal.pool.names, counts, personal.accuracy_weight, personal.cost_weight, strict=True
            )
        ],
    )
    provenance = saved.personalized(family, paper, len(rows), seed)
    save(out, personal, saved.encoder, provenance)
    voice.say(f"\nPersonal router in {out}; its parent is {bundle}. Keep it private: half of it comes from your log.")
    voice.next(
        f'fedrouter route {quoted(out)} "TEXT" --tradeoff 100 --explain',
        f"fedrouter evaluate {quoted(out)} --data FILE",
    )
    voice.result(
        {
            "bundle": str(out),
            "version": provenance.version,
            "parent": provenance.parent,
            "change": provenance.change,
            "weights": {
                name: {"rows": count, "accuracy": float(accuracy), "cost": float(cost)}
                for name, count, accuracy, cost in zip(
                    personal.pool.names, counts, personal.accuracy_weight, personal.cost_weight, strict=True
                )
            },
            **({"areas": areas} if areas else {}),
        }
    )
