"""Check that the installed Flower is the version that this package was tested with.

Three places rely on details that Flower does not promise to keep: a hook that is replaced (``process_entry.py``), log
lines that are parsed (``log_lines.py``) and the list of request paths (``access_filter.py``). Another version could
open the coordinator to other machines or hide that a client is connected, so it is refused before anything starts.
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
