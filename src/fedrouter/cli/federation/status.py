"""`fedrouter federation status`: what a coordinator or a member does, and what went wrong lately."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedrouter.cli.federation.options import DirectoryPath
from fedrouter.cli.gateway.stores import plain, shown_time
from fedrouter.cli.output import Json, Voice, quoted

if TYPE_CHECKING:
    from fedrouter.deployment.directories import CoordinatorDirectory, MemberDirectory

MOST_REFUSALS = 5


def status(path: DirectoryPath, as_json: Json = False) -> None:
    """Show the state of a coordinator (members, epochs) or of a member (process, epochs, refusals, verdict)."""
    from fedrouter.deployment.directories import CoordinatorDirectory, open_directory

    voice, directory = Voice(as_json), open_directory(path)
    if isinstance(directory, CoordinatorDirectory):
        _coordinator(voice, directory)
    else:
        _member(voice, directory)


def _coordinator(voice: Voice, directory: CoordinatorDirectory) -> None:
    from fedrouter.deployment.coordinator import connected
    from fedrouter.deployment.credentials import valid_until
    from fedrouter.deployment.lock import running
    from fedrouter.federation.coordinator import Coordinator

    pid = running(directory.pid_file)
    roster = directory.roster()
    online = connected(directory) if pid else {}
    own = Coordinator(directory.path)
    try:
        epochs: list[dict[str, Any]] = [
            {"epoch": signed.terms.epoch, "family": signed.terms.family, "opened": signed.terms.opened, "state": state}
            for signed, state in own.history()
        ]
    finally:
        own.close()
    until = valid_until((directory.path / "server.pem").read_bytes())
    voice.say(f"The coordinator {f'is running (process {pid})' if pid else 'is not running'}")
    voice.say(f"Fingerprint {directory.fingerprint}; its certificate is valid until {until:%Y-%m-%d}\n")
    members = [
        {"name": name, "fingerprint": each.fingerprint, "connected": online.get(name)}
        for name, each in sorted(roster.items())
    ]
    states = {True: "connected", False: "not connected", None: "unknown"}
    rows = [
        [plain(str(each["name"])), states[online.get(str(each["name"]))], str(each["fingerprint"])] for each in members
    ]
    if rows:
        voice.table(["member", "state", "fingerprint"], rows)
    else:
        voice.say("No member is on the roster yet.")
    if epochs:
        voice.say("")
        voice.table(
            ["epoch", "family", "began (UTC)", "state"],
            [
                [str(each["epoch"]), str(each["family"]), shown_time(each["opened"]), str(each["state"])]
                for each in epochs
            ],
        )
    if pid is None:
        voice.next(f"fedrouter federation coordinator {quoted(directory.path)}")
    voice.result(
        {
            "running": pid is not None,
            "pid": pid,
            "fingerprint": directory.fingerprint,
            "invitation": directory.invitation(),
            "certificate_valid_until": until.isoformat(),
            "members": members,
            "epochs": epochs,
        }
    )


def _member(voice: Voice, directory: MemberDirectory) -> None:
    from fedrouter.deployment.lock import running
    from fedrouter.deployment.member import opened

    pid = running(directory.pid_file)
    with opened(directory) as member:
        answers, refusals = member.journal.answers(), member.journal.refusals()
        totals = [total.epoch for total in member.totals]
        own, trusted = directory.fingerprint, member.policy.trusted
    verdict = directory.verdict()
    voice.say(f"Member {plain(directory.name)} {f'is running (process {pid})' if pid else 'is not running'}")
    voice.say(f"Fingerprint {own}; coordinator at {plain(directory.config['address'])}")
    voice.say(f"Totals: {', '.join(map(str, totals)) or 'none yet'}; trusted members: {len(trusted)}")
    if answers:
        last = answers[-1]
        voice.say(f"Last answered: {plain(last.exchange)} of epoch {last.epoch}, {shown_time(last.time)} UTC")
    if verdict:
        voice.verdict(str(verdict["text"]))
    for when, exchange, _, words in refusals[-MOST_REFUSALS:]:
        voice.warn(f"{shown_time(when)} UTC, {plain(exchange)} refused: {plain(words)}")
    if pid is None:
        voice.next(f"fedrouter federation member {quoted(directory.path)}")
    voice.result(
        {
            "name": directory.name,
            "running": pid is not None,
            "pid": pid,
            "fingerprint": own,
            "request": directory.request.read_text().strip(),
            "totals": totals,
            "trusted": list(trusted),
            "verdict": verdict,
            "refusals": [
                {"time": when, "exchange": exchange, "reason": reason, "words": words}
                for when, exchange, reason, words in refusals
            ],
        }
    )
