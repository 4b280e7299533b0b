"""Settings of the families to compare, from what a command was given."""

from __future__ import annotations

from fedrouter.errors import BadInput
from fedrouter.federation.families.family import Settings
from fedrouter.federation.families.registry import FAMILIES

EVERY = "all"


def chosen_settings(
    router: str,
    rounds: int = 5,
    participation: float = 0.6,
    k_local: int = 15,
    k_global: int = 20,
    paper: bool = False,
) -> dict[str, Settings]:
    """Settings by family, for one family or for ``all``; with ``paper``, only families that the paper has.

    Rounds and participation apply to every family that has them, numbers of clusters to K-Means, also as a part of
    `auto`.
    """
    if router != EVERY and router not in FAMILIES:
        raise BadInput(
            f"--router: expected {', '.join(FAMILIES)} or {EVERY}, got {router!r}; a family of another package needs "
            "that package to be installed"
        )
    known = [name for name in FAMILIES if FAMILIES[name].paper is not None] if paper else list(FAMILIES)
    if router not in (EVERY, *known):
        raise BadInput(f"--paper: {router} is not in the paper, which has {' and '.join(known)}")
    clusters = {"k_local": k_local, "k_global": k_global}
    averaging = {"rounds": rounds, "participation": participation}
    # A family of families has settings of its parts. Values that are wrong are refused, whether they are used or not.
    parts = {"kmeans": FAMILIES["kmeans"].settings().changed(**clusters)}
    FAMILIES["mlp"].settings().changed(**averaging)

    def settings(name: str) -> Settings:
        family = FAMILIES[name]
        start = family.paper if paper and family.paper is not None else family.settings()
        own = clusters if name == "kmeans" else {}
        return start.changed(settings=parts, **averaging, **own)

    return {name: settings(name) for name in (known if router == EVERY else [router])}
