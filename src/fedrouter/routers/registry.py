"""Router classes by the name of their family: how a saved router is loaded.

Estimation stands above learning and does not import it, so this is not the registry of families but a smaller one. It
opens the same entry points: a family of another package brings its router class.
"""

from __future__ import annotations

from typing import Any

from fedrouter.registry import Registry
from fedrouter.routers.base import Router

GROUP = "fedrouter.families"
"""The entry-point group under which another package offers a family."""


def _router_of(name: str, family: Any) -> type[Router]:
    """The router class in another package's record of a family."""
    found = family.router
    if not (isinstance(found, type) and issubclass(found, Router) and found.family == name):
        raise TypeError(f"expected a Router class of the family {name!r}, got {found!r}")
    return found


HERE = "fedrouter.routers"
ROUTERS: Registry[type[Router]] = Registry(
    "router family",
    GROUP,
    {
        "bayes": f"{HERE}.bayes:BayesRouter",
        "kmeans": f"{HERE}.kmeans:KMeansRouter",
        "mlp": f"{HERE}.mlp:MLPRouter",
        "personal": f"{HERE}.personal:PersonalRouter",
    },
    _router_of,
)


def router_class(name: str) -> type[Router]:
    """The router class of a family; an unknown name is an error that lists the known ones."""
    return ROUTERS.find(name)
