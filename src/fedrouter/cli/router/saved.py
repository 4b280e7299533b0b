"""Reads logs for a command: under which name, with which encoder, and whether a bundle knows their models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fedrouter.cli.output import Voice, bars
from fedrouter.errors import BadInput

if TYPE_CHECKING:
    from fedrouter.bundle import Bundle
    from fedrouter.encoders import EncoderIdentity
    from fedrouter.evaluations import Evaluations, Unscored


@dataclass(frozen=True)
class Log:
    """One owner's log: a file, or requests that a gateway routed.

    ``unscored`` rows count for costs, and ``repeated`` ones were left out.
    """

    owner: str
    source: str
    rows: Evaluations
    encoder: EncoderIdentity
    digest: str = ""
    unscored: Unscored | None = None
    repeated: int = 0


def is_store(source: str) -> bool:
    return "://" in source


def named(entries: Sequence[str], option: str = "LOG") -> dict[str, str]:
    """Files and stores by the name of their owner: ``NAME=FILE``, or the file's own name."""
    found: dict[str, str] = {}
    for entry in entries:
        owner, equals, source = entry.partition("=")
        if not equals or "/" in owner or ":" in owner or Path(entry).exists():
            owner, source = "gateway" if is_store(entry) else Path(entry).stem, entry
        if not owner or not source:
            raise BadInput(f"{option}: expected FILE or NAME=FILE, got {entry!r}")
        if owner in found:
            raise BadInput(f"{option}: two are named {owner}; give each a name: NAME=FILE")
        found[owner] = source
    return found


def read_logs(
    voice: Voice, sources: dict[str, str], saved: Bundle | None = None, encoder: str | None = None, new: bool = False
) -> list[Log]:
    """Every file with its own models. Names that the bundle does not know are told before anything is encoded.

    With ``new`` they may be new models; otherwise their rows are of no use, and a log that has no other is refused.
    """
    if saved is not None:
        for source in sources.values():
            _tell_unknown(voice, saved, source, new)
    found = [_of_file(owner, source, saved, encoder) for owner, source in sources.items()]
    for log in found:
        first = found[0].encoder if saved is None else saved.encoder
        if log.encoder.dimension != first.dimension:
            raise BadInput(
                f"{log.source}: its embeddings are by {log.encoder.name} and have width {log.encoder.dimension}, "
                f"expected {first.name} of width {first.dimension}; use a file with its embeddings or with text"
            )
        if saved is not None and log.encoder.weights is not None:  # the text was encoded here and now
            saved.encoder.require(log.encoder, str(saved.path))
        if saved is None and not first.matches(log.encoder):
            raise BadInput(f"{log.source}: made for the encoder {log.encoder}, expected {first}")
    return found


def _tell_unknown(voice: Voice, saved: Bundle, source: str, new: bool) -> None:
    from fedrouter.data.overview import overview

    names, known = overview(source).names, saved.router.pool
    unknown = [known.shown(name) for name in names if name not in known]
    if len(unknown) == len(names) and not new:
        raise BadInput(
            f"{source}: none of its models is in {saved.path}: it has {', '.join(unknown)}; the router knows "
            f"{', '.join(known.names)}"
        )
    if unknown and new:
        voice.say(f"{source}: new to the router: {', '.join(unknown)}")
    elif unknown:
        voice.warn(f"{source}: not in the router, their rows are left out: {', '.join(unknown)}")


def _of_file(owner: str, source: str, saved: Bundle | None, encoder: str | None) -> Log:
    from fedrouter.data.read import read

    with bars() as shown:
        dataset = read(
            source,
            encoder=encoder if saved is None else saved.encoder.name,
            watch=lambda done, total: shown.move("encoding", done, total),
        )
    return Log(owner, source, dataset.evaluations, dataset.encoder, dataset.digest, dataset.unscored, dataset.repeated)


def read_traffic(saved: Bundle, source: str) -> Log | None:
    """Requests that a gateway routed, with their propensities; None if this is no store and no export of one.

    Requests from which the router has learned are left out.
    """

    from fedrouter.data.source import Source
    from fedrouter.learning.traffic import traffic_in, traffic_of
    from fedrouter.store.store import Store

    pool, encoder = saved.router.pool, saved.encoder
    changes = [saved.manifest.get("change", {}), *saved.clients.values()]
    after = max((change["learnt_until"] for change in changes if "learnt_until" in change), default=None)
    if is_store(source):
        with Store.open(source, create=False) as store:
            traffic = traffic_of(store.rows(), pool, encoder, after)
    elif {"propensity", "chosen"} <= set(Source(source).names):
        traffic = traffic_in(source, pool, encoder, after)
    else:
        return None
    if not len(traffic.evaluations):
        reasons = ", ".join(f"{count:,} {why}" for why, count in traffic.left_out.items())
        raise BadInput(f"{source}: no request that the router can be judged on ({reasons or 'it has none'})")
    return Log("gateway", source, replace(traffic.evaluations, propensity=traffic.propensity), encoder)
