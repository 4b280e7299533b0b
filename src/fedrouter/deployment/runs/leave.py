"""Remove clients from a router that was learned over a network: their own sums, asked for again, are subtracted.

Clients send what their privacy settings let them send, so a log alone does not tell what is in the router. The client
itself, with its journal, gives the same answer to the same question as long as its evaluations are the same.
"""

from __future__ import annotations

from collections.abc import Mapping

from fedrouter.bundle import Bundle
from fedrouter.deployment.runs.tally import Tally
from fedrouter.errors import BadInput
from fedrouter.federation.families.registry import family
from fedrouter.federation.federation import Federation
from fedrouter.routers.base import Router


def require_members(base: Bundle, names: tuple[str, ...]) -> None:
    """Raise BadInput unless all of these contributed to the router, and others did, too."""
    strangers = [name for name in names if name not in base.clients]
    if strangers:
        raise BadInput(f"{', '.join(strangers)}: not a client of this router, which has {', '.join(base.clients)}")
    if len(set(names)) == len(base.clients):
        raise BadInput(f"{', '.join(names)}: all clients of this router; nothing would be left of it")


def remove_clients(base: Bundle, federation: Federation) -> tuple[Router, Mapping[str, int]]:
    """The router without the clients of this federation, and the number of rows subtracted of each.

    Refused unless every one sends the sums of exactly the rows that it contributed, as far as the bundle records them:
    under secure sums it does not, and then only sums that are larger than what is there are noticed.
    """
    names = tuple(federation.clients())
    require_members(base, names)
    tally = Tally(federation)
    router = family(base.router.family).removal()(base.router, tally)
    for name in names:
        sent, contributed = tally.rows.get(name, 0), int(base.clients[name]["rows"])
        if not sent:
            raise BadInput(
                f"{name}: sends nothing to subtract; its privacy settings withhold the sums outside of secure sums, or "
                "it did not answer"
            )
        if contributed and sent != contributed:
            raise BadInput(
                f"{name}: expected the sums of the {contributed:,} evaluations it contributed, got those of {sent:,}; "
                "its log has changed since, so learn the router again without it"
            )
    return router, {name: tally.rows[name] for name in names}
