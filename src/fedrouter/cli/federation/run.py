"""`fedrouter federation run`: one epoch, shown exchange by exchange, and what each member may do next."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from fedrouter.cli.federation.options import CoordinatorPath
from fedrouter.cli.gateway.stores import plain
from fedrouter.cli.output import Json, Voice, bars
from fedrouter.cli.protocol_options import SetOption
from fedrouter.errors import REFUSALS, BadInput, FedrouterError

DEFAULT = "bayes"
EXCHANGES = {
    "keys": "members agree to the terms",
    "shares": "keys are shared, so that one who drops out delays nobody",
    "masked": "each sends its numbers, with noise, under masks",
    "agree": "members agree on who is in the total",
    "unmask": "the masks of the total are opened",
    "total": "everybody gets the total",
}
NEEDS_CONSENT = "NeedsConsent"
"""Name of the error with which an epoch asks whether to go on."""


def run(
    path: CoordinatorPath,
    router: Annotated[
        str, typer.Option("--router", metavar="FAMILY", help="bayes; or kmeans or mlp, where every policy allows it.")
    ] = DEFAULT,
    paper: Annotated[bool, typer.Option("--paper", help="kmeans, mlp: exactly as in the paper.")] = False,
    settings: SetOption = None,
    wait: Annotated[float, typer.Option("--wait", min=0, help="Seconds to wait for members to connect.")] = 60.0,
    timeout: Annotated[float, typer.Option("--timeout", min=1, help="Seconds for the whole epoch.")] = 3600.0,
    yes: Annotated[bool, typer.Option("--yes", help="Go on also where noise costs much, without asking.")] = False,
    as_json: Json = False,
) -> None:
    """Perform one epoch with all members, or go on with one that was interrupted."""
    from fedrouter.deployment.directories import open_coordinator
    from fedrouter.deployment.runs import perform
    from fedrouter.federation.secagg.participant import LEAST_MEMBERS

    voice, directory = Voice(as_json), open_coordinator(path)
    config, members = directory.config, len(directory.roster())
    if members < LEAST_MEMBERS:
        raise BadInput(
            f"{path}: an epoch needs at least {LEAST_MEMBERS} members, {members} are approved; "
            f"`fedrouter federation approve {path} REQUEST` admits one that has joined"
        )
    job = {
        "family": router,
        "epsilon": config["epsilon"] if router == DEFAULT else 0.0,
        "delta": config["delta"],
        "settings": _settings(router, paper, settings or []),
        "days": config["days"],
        "seconds": timeout,
        "consent": yes,
        "wait": wait,
    }
    with bars() as shown_bars:
        shown = _Shown(voice, lambda done: shown_bars.move("epoch", done, len(EXCHANGES)))
        last = perform(directory, job, timeout, shown.show)
        if last.get("error") == NEEDS_CONSENT and not yes and sys.stdin.isatty() and not as_json:
            voice.warn(plain(last["reason"]))
            if typer.confirm("Go on with this epoch?"):
                last = perform(directory, {**job, "consent": True}, timeout, shown.show)
    if last["event"] == "failed":
        more = "; --yes goes on" if last.get("error") == NEEDS_CONSENT else ""
        raise FedrouterError(f"{last['reason']}{more}")
    _finish(voice, last, shown)


class _Shown:
    """Prints the events of an epoch and keeps who answered what."""

    def __init__(self, voice: Voice, move: Any) -> None:
        self._voice, self._move = voice, move
        self.answered: dict[str, list[str]] = {}
        self.refused: list[dict[str, str]] = []
        self.claims: list[str] = []

    def show(self, line: Mapping[str, Any]) -> None:
        kind = line["event"]
        if kind == "connected":
            self._voice.say(f"Connected: {_names(line['members'])}")
            if line["missing"]:
                self._voice.warn(f"not connected: {_names(line['missing'])}")
        elif kind == "again":
            self._voice.warn("the epoch's process has ended; it goes on in a new one")
        elif kind == "exchange":
            self._exchange(line)

    def _exchange(self, line: Mapping[str, Any]) -> None:
        exchange, outcome, member = line["exchange"], line["outcome"], line["member"]
        if outcome in ("opened", "lost", "given up"):
            what = "begins" if outcome == "opened" else f"is {outcome}: {line['words']}"
            self._voice.say(f"epoch {line['epoch']} {what}")
        elif outcome == "asked":
            self._move(list(EXCHANGES).index(exchange) if exchange in EXCHANGES else 0)
            about = EXCHANGES.get(exchange, "the family asks, and is answered in the clear")
            self._voice.say(f"epoch {line['epoch']}, [bold]{plain(exchange)}[/]: {about}")
        elif outcome == "answered":
            self.answered.setdefault(exchange, []).append(member)
            of = f"   {line['done']} of {line['expected']}" if line["expected"] else ""
            self._voice.say(f"  {plain(member)} {'has it' if exchange == 'total' else 'answered'}{of}")
        elif outcome in ("refused", "invalid", "silent"):
            why = {
                "refused": REFUSALS.get(line["words"], "it refuses"),
                "invalid": line["words"],
                "silent": "no answer in time",
            }[outcome]
            self.refused.append({"member": member, "exchange": exchange, "reason": why})
            self._voice.warn(f"{plain(member)} is left out of {plain(exchange)}: {plain(why)}")
        elif outcome == "claim":
            self.claims.append(line["words"])
        elif outcome == "impossible":
            self._voice.warn(f"a total that no logs can have: {plain(line['words'])}; members will not use it")


def _finish(voice: Voice, last: Mapping[str, Any], shown: _Shown) -> None:
    from fedrouter.federation.noise import ABOUT

    inside = last["survivors"]
    personal = last["family"] == DEFAULT
    what = f"{last['numbers']:,} numbers, a total" if personal else f"a {last['family']} router"
    voice.say(
        f"\n[bold]Epoch {last['epoch']}[/]: {what} of {len(inside)} members with about {last['rows']:,} new queries "
        f"({ABOUT}): {_names(inside)}"
    )
    for sentence in shown.claims:
        voice.say(plain(sentence))
    voice.say("\n[bold]Each member[/] may now, on its own machine:")
    voice.say(
        "  route with its personal router, made from the total and its own log: DIR/bundle"
        if personal
        else f"  route with this router, which is the same for all: DIR/bundle-{last['family']}"
    )
    voice.say("  see what it was worth, `fedrouter federation status DIR`, and all that left it, `audit DIR`")
    voice.say("  recompute the router from the totals, `fedrouter federation verify DIR`")
    voice.say("  trust other members' noise and add less of its own, `fedrouter federation approve DIR NAME`")
    voice.result({**last, "claims": shown.claims, "answered": shown.answered, "left_out": shown.refused})


def _settings(router: str, paper: bool, changes: list[str]) -> dict[str, Any]:
    """The family's settings as they travel in the terms; none for the default."""
    if router == DEFAULT and not paper and not changes:
        return {}
    from fedrouter.federation.families.choice import read_changes, refuse_unused
    from fedrouter.federation.families.registry import family, paper_settings

    start = paper_settings(router) if paper else family(router).settings()
    given = read_changes(changes)
    found = start.changed(**given.get(router, {}))
    refuse_unused(given, {router: found})
    return dict(found.to_json())


def _names(names: Any) -> str:
    return plain(", ".join(names)) if names else "nobody"
