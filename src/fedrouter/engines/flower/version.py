"""Check that the installed Flower is the version that this package was tested with.

Several places rely on details that Flower does not promise to keep: a hook that is replaced (``superlink.py``), request
paths (``access_filter.py``), and the requests that both sides of a run make themselves (``http.py``, ``objects.py``,
``run_link.py``, ``node_link.py``). Another version could open the coordinator to other machines, so it is refused
before anything starts.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from fedrouter.errors import FedrouterError, MissingExtra

TESTED = "1.41.0"


def check_flower() -> None:
    """Raise unless the tested version of Flower is installed."""
    try:
        found = version("flwr")
    except PackageNotFoundError:
        raise MissingExtra("A federation across machines", "flower") from None
    if found != TESTED:
        raise FedrouterError(
            f"found Flower {found}, but fedrouter was tested with Flower {TESTED}: pip install 'flwr=={TESTED}'"
        )
