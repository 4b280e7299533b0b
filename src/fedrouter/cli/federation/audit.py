"""`fedrouter federation audit`, `verify`: everything that left a member; a router recomputed from the totals."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedrouter.cli.federation.options import MemberPath
from fedrouter.cli.gateway.stores import plain, shown_time
from fedrouter.cli.output import Json, Voice
from fedrouter.errors import BadInput

if TYPE_CHECKING:
    from fedrouter.federation.journal import Released

NOT_COVERED = (
    "This is the member's own journal: it does not show what other software on this machine sends, nor what somebody "
    "who can write in this directory has taken out of it."
)


def audit(
    path: MemberPath,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Also write every number that left here, a file a release."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show everything that ever left a member, in words, who took part, and every number on request."""
    from fedrouter.deployment.directories import open_member
    from fedrouter.deployment.member import opened
    from fedrouter.federation.identity import fingerprint

    voice, directory = Voice(as_json), open_member(path)
    with opened(directory) as member:
        answers, releases, policy = member.journal.answers(), member.journal.releases(), member.policy
        refused = Counter(reason for _, _, reason, _ in member.journal.refusals())
        totals = {total.epoch: list(total.survivors) for total in member.totals}
        asked = {each.terms.epoch: each.terms.keys for each in member.journal.terms()}
    voice.table(
        ["sent (UTC)", "epoch", "exchange", "bytes", "what left"],
        [
            [shown_time(each.time), str(each.epoch), plain(each.exchange), f"{each.bytes:,}", plain(each.words)]
            for each in answers
        ],
        title=f"What left {plain(directory.name)}",
        wrapped=["what left"],
    )
    if asked:
        voice.say("")
        voice.table(
            ["epoch", "members in its terms", "members in its total"],
            [
                [str(epoch), plain(", ".join(keys)), plain(", ".join(totals.get(epoch, ["none came"])))]
                for epoch, keys in asked.items()
            ],
            title="Who took part: a total of others than on the list that this member signed is refused",
            wrapped=["members in its terms", "members in its total"],
        )
    files = _write(out, releases) if out is not None else []
    for each in releases:
        voice.say(f"\n[bold]Epoch {each.epoch}[/], {shown_time(each.time)} UTC: {_in_words(each)}")
    if not releases:
        voice.say("\nNo number about a query has left yet.")
    voice.say(f"\nDeclared models, which every member sees: {plain(', '.join(policy.models)) or 'none'}")
    if totals:
        voice.say(f"Told the coordinator that it has the totals of these epochs: {', '.join(map(str, totals))}")
    if refused:
        words = ", ".join(f"{reason} ({times})" for reason, times in refused.items())
        voice.say(f"Refused messages, with a word each (why: `fedrouter federation status`): {words}")
    for file in files:
        voice.say(f"Written: {plain(file)}")
    voice.say(NOT_COVERED)
    voice.result(
        {
            "name": directory.name,
            "sent": [vars(each) for each in answers],
            "releases": [
                {
                    "epoch": each.epoch,
                    "family": each.family,
                    "time": each.time,
                    "queries": each.queries,
                    "numbers": len(each.sent),
                    "spent": dict(each.spent),
                    "words": _in_words(each),
                }
                for each in releases
            ],
            "epochs": [
                {
                    "epoch": epoch,
                    "members": {name: fingerprint(key) for name, key in keys.items()},
                    "total": totals.get(epoch),
                }
                for epoch, keys in asked.items()
            ],
            "totals": list(totals),
            "refused": refused,
            "files": files,
        }
    )


def _in_words(one: Released) -> str:
    """What a release says about whom, in sentences."""
    if one.family != "bayes":
        return (
            f"what {one.family} asked about {one.queries:,} queries, which have taken part in it now and never do "
            "again. No noise was added; what is marked above as in the clear the coordinator saw as it was"
        )
    epsilon = float(one.spent.get("epsilon", 0.0))
    about = (
        f"{len(one.sent):,} numbers about {one.queries:,} queries, each of which has left now and never leaves again: "
        "for each model the count, the sums of features, of features times accuracy and times cost, and one table of "
        "sums of products of features"
    )
    noise = (
        f"Noise of standard deviation {float(one.spent['deviation']):.1f} was added here before masking, so that for "
        f"each query, once and for ever, ε = {epsilon:g} (δ = {float(one.spent['delta']):g})"
        if epsilon
        else "No noise was added"
    )
    return (
        f"{about}. {noise}. The coordinator saw only their sum with those of the other members in that epoch; members "
        "that it invented would add nothing, and leave what this noise hides."
    )


def _write(out: Path, releases: list[Released]) -> list[str]:
    import numpy as np

    from fedrouter.files import make_private_folder, replacing

    make_private_folder(out)
    files = []
    for each in releases:
        path = out / f"{each.family}-{each.epoch}.npz"
        if path.exists():
            raise BadInput(f"{path}: already exists and is not overwritten")
        with replacing(path, 0o600) as file:
            np.savez_compressed(file, sent=each.sent, without_noise=each.exact)
        files.append(str(path))
    return files


def verify(
    path: Annotated[
        Path, typer.Argument(metavar="DIR", help="A member's state directory, or a folder with totals of epochs.")
    ],
    coordinator: Annotated[
        str | None, typer.Option("--coordinator", metavar="KEY", help="Its public key, where DIR has no policy.yaml.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="BUNDLE", help="Write the totals' router here.")] = None,
    as_json: Json = False,
) -> None:
    """Check the coordinator's signatures under the totals and recompute the router from them."""
    from fedrouter.bundle import Provenance, refuse_existing, save
    from fedrouter.deployment import home
    from fedrouter.deployment.directories import open_member
    from fedrouter.deployment.member import opened
    from fedrouter.encoders import EncoderIdentity

    voice, difference = Voice(as_json), None
    if out is not None:
        refuse_existing(out)
    if coordinator is not None:
        folder, key = path, _key(coordinator)
    else:
        directory = open_member(path)
        folder, key = path / "totals", bytes.fromhex(str(directory.config["coordinator"]))
        with opened(directory) as member:
            difference = home.verify_bundle(path, member)
    totals, found = home.verify(folder, key)
    digest = "" if found is None else home.fingerprint_of(found)
    for total in totals:
        fault = total.fault()
        state = f"not used: {fault}" if fault else f"{len(total.survivors)} members, about {total.rows:,} queries"
        voice.say(f"Epoch {total.epoch}: signed by the coordinator; {plain(state)}")
    if digest:
        voice.say(f"Their sum, the same wherever it is computed: {digest}")
    if difference is not None:
        if difference > home.AGREEMENT:
            raise BadInput(f"{path / home.BUNDLE}: its predictions differ by {difference:.3g} from those recomputed")
        voice.say(
            f"The bundle's sums are those of the totals, to the bit; its predictions agree within {difference:.1g}"
        )
    router = totals[-1].made() if found is None else home.shared_router(found)
    if out is not None:
        if router is None:
            raise BadInput(f"{folder}: no total that logs can have, so there is no router to write")
        terms = totals[-1].terms
        made = Provenance.of_run("totals of a federation", digest, 0, {}, {})
        save(out, router, EncoderIdentity(terms.encoder, terms.dimension, True), made)
        voice.say(f"Router of the totals alone: {plain(out)}")
    voice.result(
        {
            "epochs": [total.epoch for total in totals],
            "sum": digest,
            "difference": difference,
            "models": [] if router is None else list(router.pool.names),
            "bundle": None if out is None else str(out),
        }
    )


def _key(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise BadInput("--coordinator: expected 64 hexadecimal digits, as in a member's policy.yaml") from None
