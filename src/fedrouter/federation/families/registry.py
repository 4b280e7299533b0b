"""The registry of router families. Everything that lists, looks up or loads families asks it.

A family from another package joins through the entry-point group ``fedrouter.families``, in that package's
``pyproject.toml``::

    [project.entry-points."fedrouter.families"]
    median = "fedrouter_median.family:FAMILY"
"""

from __future__ import annotations

from typing import Any

from fedrouter.errors import BadInput
from fedrouter.federation.families.family import Family, Settings
from fedrouter.registry import Registry
from fedrouter.routers.registry import GROUP


def _accept(name: str, found: Any) -> Family:
    if not isinstance(found, Family):
        raise TypeError(f"expected a Family, got {type(found).__name__}")
    if found.name != name:
        raise ValueError(f"its record is named {found.name!r}")
    return found


HERE = "fedrouter.federation.families"
FAMILIES: Registry[Family] = Registry(
    "router family",
    GROUP,
    {
        "bayes": f"{HERE}.bayes:FAMILY",
        "kmeans": f"{HERE}.kmeans:FAMILY",
        "mlp": f"{HERE}.mlp:FAMILY",
    },
    _accept,
)


def family(name: str) -> Family:
    """The family of this name; an unknown name is an error that lists the known ones."""
    return FAMILIES.find(name)


def paper_settings(name: str) -> Settings:
    """The paper's settings of a family as printed: what ``--paper`` stands for, in one process and over the wire.

    Beside them, ``--paper`` means that nothing protects the rows and that ties are broken at random.
    """
    if (printed := family(name).paper) is None:
        raise BadInput(f"--paper: {name} is not in the paper, which has kmeans and mlp")
    return printed


def title(name: str) -> str:
    """A family's name in figures and tables; a name that is not a family's stays as it is."""
    return FAMILIES[name].title if name in FAMILIES else name
