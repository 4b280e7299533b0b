"""`fedrouter audit`: what a client was asked and what it has sent, message by message, from its own journal."""

from __future__ import annotations

import io
import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedrouter.cli.gateway.stores import plain
from fedrouter.cli.output import Json, Voice, quoted
from fedrouter.errors import BadInput

if TYPE_CHECKING:
    from fedrouter.federation.privacy.journal import Asked, Journal, Sent

MOST_SHAPES = 2
"""Number of shapes in a line of the table; a network has many more."""
NOT_COVERED = (
    "What this cannot detect: messages removed from the end, or a journal rewritten as a whole by someone with write "
    "access. Both change the last fingerprint, so keep a copy of it on another machine. "
    "It does not show what other software on this machine sends, either."
)


def audit(
    path: Annotated[Path, typer.Argument(metavar="DIR", help="A client's state directory, or its journal.sqlite.")],
    show: Annotated[int | None, typer.Option("--show", metavar="N", help="One message, whole.")] = None,
    asked: Annotated[int | None, typer.Option("--asked", metavar="N", help="One question, whole.")] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="With --show or --asked: write its arrays to this .npz and the rest beside it."),
    ] = None,
    as_json: Json = False,
) -> None:
    """List every question a client was asked and every message it has sent: when, what kind, how large, what became of
    it, and the ε of a release."""
    from fedrouter.federation.privacy.journal import Journal

    if out is not None and show is None and asked is None:
        raise BadInput("--out goes with --show N or --asked N")
    if show is not None and asked is not None:
        raise BadInput("--show and --asked: choose one")
    journal = Journal(path / "journal.sqlite" if path.is_dir() else path, reading=True)
    try:
        # Verified first: a journal that was tampered with is not worth reading.
        messages = journal.verify()
        entries = list(journal.entries())
        if asked is not None:
            _show_question(journal, asked, out, Voice(as_json))
        elif show is None:
            _list(journal, entries, messages, Voice(as_json))
        else:
            _show(journal, entries, show, out, Voice(as_json))
    except sqlite3.DatabaseError:
        raise BadInput(f"{journal.path}: damaged, and cannot be read to its end") from None
    finally:
        journal.close()


def _list(journal: Journal, entries: list[Sent], messages: int, voice: Voice) -> None:
    rows = [
        [str(one.number), _time(one), plain(one.verb), f"{one.bytes:,}", _epsilon(one), _shapes(one)] for one in entries
    ]
    voice.table(["", "sent (UTC)", "verb", "bytes", "ε", "shapes"], rows, title=plain(journal.path), wrapped=["shapes"])
    verbs = sorted({one.verb for one in entries})
    totals = {
        verb: {
            "messages": sum(one.verb == verb for one in entries),
            "bytes": sum(one.bytes for one in entries if one.verb == verb),
        }
        for verb in verbs
    }
    lines = [[plain(verb), f"{total['messages']:,}", f"{total['bytes']:,}"] for verb, total in totals.items()]
    everything = sum(one.bytes for one in entries)
    voice.say("")
    voice.table(["verb", "messages", "bytes"], [*lines, ["all", f"{messages:,}", f"{everything:,}"]])
    questions = list(journal.questions())
    voice.say("")
    voice.table(
        ["", "asked (UTC)", "verb", "bytes", "outcome"],
        [[str(one.number), _time(one), plain(one.verb), f"{one.bytes:,}", plain(one.outcome)] for one in questions],
    )
    last = entries[-1].chain if entries else ""
    released = [spent["epsilon"] for one in entries if (spent := _spent(one))]
    if released:
        total = f"ε {sum(released):.3g} at most" if all(released) else "no ε holds, because one had no noise"
        voice.say(f"\nReleases: {len(released)}; together {total}")
    voice.say(f"\nAll {messages:,} messages are as they were written down: the chain of fingerprints holds.")
    voice.say(f"Last fingerprint: {last or 'none yet'}")
    voice.say(NOT_COVERED)
    if entries:
        voice.next(f"fedrouter audit {quoted(journal.path)} --show {entries[-1].number}")
    voice.result(
        {
            "journal": str(journal.path),
            "verified": True,
            "messages": messages,
            "bytes": everything,
            "releases": [spent for one in entries if (spent := _spent(one))],
            "last_fingerprint": last,
            "totals": totals,
            "sent": [_entry(one) for one in entries],
            "asked": [asdict(one) for one in questions],
        }
    )


def _show(journal: Journal, entries: list[Sent], number: int, out: Path | None, voice: Voice) -> None:
    verb, packed = journal.message(number)
    one = next(one for one in entries if one.number == number)
    scalars = json.loads(packed[1])
    parts = list(_parts(verb, packed))
    voice.say(f"Message {number}, {plain(verb)}, sent {_time(one)} UTC, {one.bytes:,} bytes")
    voice.say(f"Fingerprint {one.chain}, and the chain of fingerprints holds.")
    for name, value in scalars.items():
        voice.say(f"{plain(name)}: {plain(value)}")
    if parts:
        voice.table(
            ["", "kind", "shape", "least", "mean", "most"],
            [[plain(name), kind, _sized(values.shape), *_range(values)] for name, kind, values in parts],
        )
    if spent := _spent(one):
        noise = f"noise of ε {spent['epsilon']:g}, δ {spent['delta']:g}" if spent["epsilon"] else "no noise"
        voice.say(f"A release with {noise}")
    files = []
    if out is not None:
        files = _write(out, packed[0], {**_entry(one), "scalars": scalars})
        voice.say("Written: " + plain(", ".join(files)))
    arrays = {name: {"kind": kind, "shape": list(v.shape), "values": v.tolist()} for name, kind, v in parts}
    voice.result({**_entry(one), "verified": True, "scalars": scalars, "arrays": arrays, "files": files})


def _show_question(journal: Journal, number: int, out: Path | None, voice: Voice) -> None:
    verb, (arrays, text) = journal.question(number)
    one = next(one for one in journal.questions() if one.number == number)
    scalars = json.loads(text)
    voice.say(f"Question {number}, {plain(verb)}, asked {_time(one)} UTC, {one.bytes:,} bytes, {plain(one.outcome)}")
    voice.say(f"Digest {one.digest}")
    signed = _signed_in(journal, one)
    if signed is not None:
        where = "here" if signed == number else f"in question {signed} (follow)"
        voice.say(f"The coordinator signed {where} that it asks this; the signature is valid.")
    elif verb == "follow" and (journal.path.parent / "ca.pem").exists():
        voice.warn("There is no valid signature of the coordinator.")
    for name, value in scalars.items():
        voice.say(f"{plain(name)}: {plain(value)}")
    shown = {name: array for name, array in arrays.items() if array.dtype.kind in "fiub"}
    if shown:
        voice.table(
            ["", "kind", "shape", "least", "mean", "most"],
            [[plain(name), str(a.dtype), _sized(a.shape), *_range(a)] for name, a in shown.items()],
        )
    files = _write(out, arrays, {**asdict(one), "scalars": scalars}) if out is not None else []
    if files:
        voice.say("Written: " + plain(", ".join(files)))
    voice.result(
        {
            **asdict(one),
            "signed_in": signed,
            "scalars": scalars,
            "arrays": {name: {"kind": str(a.dtype), "shape": list(a.shape)} for name, a in arrays.items()},
            "files": files,
        }
    )


def _signed_in(journal: Journal, one: Asked) -> int | None:
    """Number of the question by which the coordinator signed that it asks this one, if its certificate is at hand."""
    certificate = journal.path.parent / "ca.pem"
    if not certificate.exists():
        return None
    from fedrouter.deployment.state.credentials import question_verifier
    from fedrouter.federation.verbs.follow import FollowRequest

    verify = question_verifier(certificate)
    statements = [each for each in journal.questions() if each.verb == "follow" and each.number <= one.number]
    for other in reversed(statements):  # what is stated is asked right after it
        proof = FollowRequest.unpack(journal.question(other.number)[1])
        if other.number == one.number or one.digest in proof.asked[-1].split():
            valid = _hex(proof.signature) and verify(proof.statement(), bytes.fromhex(proof.signature))
            return other.number if valid else None
    return None


def _hex(text: str) -> bool:
    try:
        return bool(bytes.fromhex(text))
    except ValueError:
        return False


def _parts(verb: str, packed: Any) -> Iterator[tuple[str, str, Any]]:
    """The message's arrays by name, with their type; exact sums as floats."""
    import numpy as np

    from fedrouter.exact import ExactSums
    from fedrouter.federation.message import withheld_by
    from fedrouter.federation.verbs.registry import verb_named

    if withheld_by(packed):  # there was nothing in its arrays, and they were not sent
        return
    message = verb_named(verb).reply.unpack(packed)
    for part in fields(message):
        value = getattr(message, part.name)
        if isinstance(value, ExactSums):
            yield part.name, "exact sums", value.totals()
        elif isinstance(value, np.ndarray):
            yield part.name, str(value.dtype), value
        elif isinstance(value, Mapping):
            yield from ((f"{part.name}/{name}", str(array.dtype), array) for name, array in value.items())


def _write(out: Path, arrays: Any, rest: dict[str, Any]) -> list[str]:
    """Write the arrays and everything else to two new files that only their owner may read."""
    import numpy as np

    from fedrouter.files import write_new

    if out.suffix != ".npz":
        raise BadInput(f"--out {out}: expected a file name that ends in .npz")
    content = io.BytesIO()
    np.savez(content, allow_pickle=False, **arrays)
    write_new(out, content.getvalue())
    write_new(out.with_suffix(".json"), json.dumps(rest, indent=2).encode())
    return [str(out), str(out.with_suffix(".json"))]


def _entry(one: Sent) -> dict[str, Any]:
    return {
        "number": one.number,
        "time": one.time,
        "verb": one.verb,
        "bytes": one.bytes,
        "shapes": one.shapes,
        "spent": _spent(one),
        "fingerprint": one.chain,
    }


def _spent(one: Sent) -> Any:
    return json.loads(one.spent) if one.spent else None


def _epsilon(one: Sent) -> str:
    spent = _spent(one)
    return "" if not spent else f"{spent['epsilon']:.3g}" if spent["epsilon"] else "no noise"


def _time(one: Sent | Asked) -> str:
    return plain(one.time[:19].replace("T", " "))


def _shapes(one: Sent) -> str:
    shown = [f"{plain(name)} {_sized(shape)}" for name, shape in list(one.shapes.items())[:MOST_SHAPES]]
    more = len(one.shapes) - MOST_SHAPES
    return ", ".join(shown) + (f" +{more}" if more > 0 else "")


def _sized(shape: Any) -> str:
    return "×".join(map(str, shape)) or "one"


def _range(values: Any) -> list[str]:
    if not values.size:
        return ["", "", ""]
    return [f"{number:.4g}" for number in (values.min(), values.mean(), values.max())]
