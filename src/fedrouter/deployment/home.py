"""A member's routers, made at home from the totals and its own log, and what being a member was worth.

The total of an epoch has this member's numbers in it, which it knows without noise and takes out; what remains is what
the others say. It has a weight for each model, chosen by how likely it makes the own rows of that model, and counts as
at most ``cap`` rows of it.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from fedrouter.bundle import Bundle, Provenance, load, save
from fedrouter.deployment.directories import VERDICT, open_member
from fedrouter.deployment.member import opened
from fedrouter.deployment.own_log import OwnLog
from fedrouter.encoders import EncoderIdentity
from fedrouter.encoders.feature_map import map_of_width
from fedrouter.errors import BadInput, FedrouterError
from fedrouter.evaluations import Evaluations
from fedrouter.evidence import Evidence
from fedrouter.federation.families.bayes import from_rows
from fedrouter.federation.total import Total, sum_of, verified
from fedrouter.files import locked, replace_file
from fedrouter.frontier.outcomes import NORMAL, WIDER, Log
from fedrouter.pool import ModelPool
from fedrouter.routers.base import Router
from fedrouter.routers.bayes import BayesRouter

if TYPE_CHECKING:
    from fedrouter.federation.member import Member
    from fedrouter.release import Release

QUALITY: Final = 0.95
FOLDS: Final = 5
LEAST_QUERIES: Final = 50
AGREEMENT: Final = 1e-6
"""By how much accuracies, and costs as a share, may differ between machines: linear algebra differs in the last bit."""
BUNDLE = "bundle"


def main() -> None:
    """``python -m fedrouter.deployment.home DIR``: make the routers of new totals; prints a sentence for each."""
    directory = open_member(Path(sys.argv[1]))
    own = OwnLog(str(directory.config["log"]), str(directory.config["encoder"]))
    with opened(directory, own) as member:
        try:
            # One at a time: a member that was killed leaves one of these behind, and starts another when it is back.
            with locked(directory.path / "routers.lock"):
                made = make_routers(directory.path, member, own)
            sys.stdout.buffer.write("\n".join(made).encode())
        except FedrouterError as error:
            sys.exit(str(error))


def make_routers(directory: Path, member: Member, own: OwnLog) -> list[str]:
    """Make a router of the newest total of each family, where there is none yet; says what was made."""
    made = []
    for family, total in {total.terms.family: total for total in member.totals}.items():
        link, folder = link_of(directory, family), directory / "bundles" / f"epoch-{total.epoch}"
        if family not in member.policy.families or link.resolve() == folder.resolve():
            continue
        if family == "bayes":
            text = make_router(directory, link, folder, member, *own.read())
        else:
            router = total.made()
            assert router is not None
            _save(link, folder, router, own.read()[1], member, [total], {"epoch": total.epoch}, total.terms.settings)
            text = f"It is the one that {len(total.survivors)} members learned; nothing of the own log was added."
        made.append(f"router of epoch {total.epoch} in {link}. {text}")
    return made


def make_router(
    directory: Path, link: Path, folder: Path, member: Member, rows: Evaluations, encoder: EncoderIdentity
) -> str:
    """Write ``bundle`` and ``verdict.json`` into a member's directory; what being a member was worth, in a sentence."""
    totals = [total for total in member.totals if total.terms.family == "bayes"]
    others, cap, epoch = member.others(), member.policy.cap, totals[-1].epoch
    if len(rows):
        own = from_rows([rows])
        router = own if others is None else together(own, others, cap)
        worth = compare(own, router, rows)
    else:
        router, worth = without_own(others, cap), {"queries": 0, "worth": None}
    change = {"epoch": epoch, "totals": [total.epoch for total in totals]}
    text = _sentence(worth, router)
    verdict = json.dumps({"epoch": epoch, "text": text, **worth}, indent=2).encode()
    _save(link, folder, router, encoder, member, totals, change, {}, {member.name: len(rows)})
    replace_file(directory / VERDICT, verdict)
    return text


def link_of(directory: Path, family: str) -> Path:
    """Where a member has its newest router of a family: ``bundle`` is the default one's."""
    return directory / (BUNDLE if family == "bayes" else f"{BUNDLE}-{family}")


def _save(
    link: Path,
    folder: Path,
    router: Router,
    encoder: EncoderIdentity,
    member: Member,
    totals: Sequence[Total],
    change: Mapping[str, Any],
    settings: Mapping[str, Any],
    rows: Mapping[str, int] = {},
) -> None:
    digest = hashlib.sha256(b"".join(sorted(total.signature for total in totals))).hexdigest()
    source = "a federation's totals and own rows" if rows else "a federation"
    made = Provenance.of_run(source, digest, 0, rows, settings)
    shutil.rmtree(folder, ignore_errors=True)  # of a process that ended before the link named it
    save(folder, router, encoder, replace(made, change={"verb": "federation", **change}))
    # A symbolic link that names another folder, atomically.
    scratch = link.with_name(f".{link.name}.new")
    scratch.unlink(missing_ok=True)
    os.symlink(folder.relative_to(link.parent), scratch)
    os.replace(scratch, link)


def together(own: BayesRouter, others: Release, cap: int) -> BayesRouter:
    """The router of own evidence and of what the others' total says, over the models of either."""
    more = [name for name in others.pool.names if name not in own.pool]
    pool = own.pool.with_models(ModelPool(more)) if more else own.pool
    return BayesRouter.of(own.evidence.over(pool)).beside(others.over(pool), cap)


def without_own(others: Release | None, cap: int) -> BayesRouter:
    """The router of a member whose log is empty."""
    if others is None:
        raise BadInput("the log is empty, and there is no total that logs can have: no router can be made")
    weight = np.minimum(cap / np.maximum(others.count, 1.0), 1.0)
    return BayesRouter.of(Evidence.none(others.pool, others.features), others, weight)


def compare(own: BayesRouter, router: BayesRouter, rows: Evaluations) -> dict[str, Any]:
    """What the router is worth beside the own one, on own queries that neither has seen, in accuracy a query.

    Both route at the λ with which the own one keeps ``QUALITY`` of the best model's accuracy, or, where the cheapest
    model does that at any λ, at the one that takes the most expensive model's cost for all of accuracy; doubly robust,
    paired.
    """
    rows = rows.over(own.pool)
    if rows.queries < LEAST_QUERIES:
        return {"queries": rows.queries, "worth": None}
    log = Log.of(rows, FOLDS)
    if not log.judged.any():
        return {"queries": log.queries, "worth": None}

    def without(left_out: frozenset[int], of: BayesRouter) -> BayesRouter:
        held = log.rows.of_queries(np.flatnonzero(np.isin(log.fold, list(left_out))))
        less = of.evidence - Evidence.of(held.over(of.pool), of.evidence.features)
        return BayesRouter.of(less, of.total, of.weight, of.prior, of.penalties)

    alone, joined = (log.outcomes(lambda left_out, of=of: without(left_out, of)) for of in (own, router))  # type: ignore[misc]
    highest = float(alone.cost.mean(axis=0).max())
    tradeoff = min(float(alone.tradeoffs[alone.of_quality(QUALITY)[0]]), 1 / highest if highest > 0 else math.inf)
    every = np.arange(len(alone))
    first, second = (each.chooser.choose(tradeoff) for each in (alone, joined))
    # Two tables of the same outcomes, each filled with one router's predictions: neither is to be favored.
    accuracy, cost = (alone.accuracy + joined.accuracy) / 2, (alone.cost + joined.cost) / 2
    gains = [table[every, second] - table[every, first] for table in (accuracy, cost)]
    utility = gains[0] - tradeoff * gains[1]
    influence = np.bincount(alone.group, utility - utility.mean())
    error = WIDER * math.sqrt(np.square(influence).sum()) / len(utility)
    worth = float(utility.mean())
    return {
        "queries": log.queries,
        "worth": worth,
        "low": worth - NORMAL * error,
        "high": worth + NORMAL * error,
        "accuracy": float(gains[0].mean()),
        "cost": float(gains[1].mean()),
        "tradeoff": tradeoff,
        "changed": float((first != second).mean()),
    }


def _sentence(worth: Mapping[str, Any], router: BayesRouter) -> str:
    if router.total is None or not np.any(np.where(router.total.told, router.weight, 0.0)):
        return "The totals do not fit this log, so they count for nothing here: the router is that of the own log."
    if worth["worth"] is None:
        return f"The log has too few queries ({worth['queries']}) to say what being a member is worth."
    low, high = worth["low"], worth["high"]
    clear = "clearly better" if low > 0 else "clearly worse" if high < 0 else "neither clearly better nor worse"
    return (
        f"Being a member is worth {worth['worth']:+.4f} of accuracy a query at the same price of cost (95% interval "
        f"{low:+.4f} to {high:+.4f}): {clear} than the own log alone, on {worth['queries']:,} own queries that neither "
        f"router had seen. It chooses another model for {worth['changed']:.0%} of them."
    )


def verify(folder: Path, coordinator: bytes) -> tuple[list[Total], Release | None]:
    """The totals in a folder, all signed by the coordinator, and their sum, which every member computes alike.

    No sum if there is no total that logs can have, or only those of the paper's families.
    """
    totals = verified(folder, coordinator)
    if not totals:
        raise BadInput(f"{folder}: has no total yet; `fedrouter federation run` at the coordinator makes one")
    return totals, sum_of(totals, len(totals))


def shared_router(found: Release) -> BayesRouter:
    """The router of totals alone."""
    return BayesRouter.of(Evidence.none(found.pool, found.features), found)


def verify_bundle(directory: Path, member: Member) -> float | None:
    """The largest difference between a member's bundles and the routers recomputed from its totals and evidence.

    None if it has no router of the default family. One of the paper's families is what its total has, to the bit.
    """
    for family, total in {total.terms.family: total for total in member.totals}.items():
        learned, link = total.made(), link_of(directory, family)
        if learned is not None and link.exists():
            kept = load(link).router.arrays()
            if kept.keys() != learned.arrays().keys() or not all(
                np.array_equal(array, kept[name]) for name, array in learned.arrays().items()
            ):
                raise BadInput(f"{link}: is not the router in the total of epoch {total.epoch}")
    if not (directory / BUNDLE).exists():
        return None
    bundle: Bundle = load(directory / BUNDLE)
    router, others = bundle.router, member.others()
    if not isinstance(router, BayesRouter):
        raise BadInput(f"{bundle.path}: expected a router of the family bayes, got {router.family}")
    if router.total is None or others is None:
        if (router.total is None) != (others is None):
            raise BadInput(f"{bundle.path}: was not made from the totals in {directory / 'totals'}")
        return 0.0
    others = others.over(router.pool)
    if not np.array_equal(others.vector(), router.total.vector()) or others.noise != router.total.noise:
        raise BadInput(f"{bundle.path}: its sums are not those of the totals in {directory / 'totals'}")
    # The search for penalties began where that of own evidence ended; from elsewhere it may end elsewhere.
    own = BayesRouter.of(router.evidence, prior=router.prior) if router.evidence.count.any() else None
    start = None if own is None else own.penalties
    return furthest([router, BayesRouter.of(router.evidence, others, router.weight, router.prior, start)])


def furthest(routers: Sequence[BayesRouter]) -> float:
    """The largest difference between two routers' predictions for some embeddings; of costs, as a share."""
    one, other = routers
    draw = np.random.default_rng(0).normal(size=(64, one.dimension))
    draw /= np.linalg.norm(draw, axis=1, keepdims=True)
    first, second = (each.estimate(draw) for each in (one, other))
    return float(
        max(
            np.nanmax(np.abs(first.accuracy - second.accuracy), initial=0.0),
            np.nanmax(np.abs(first.cost / second.cost - 1), initial=0.0),
        )
    )


def fingerprint_of(found: Release) -> str:
    """A digest of a sum, equal on every machine that has the same totals."""
    names = json.dumps([*found.pool.names, map_of_width(found.features.dimension).digest]).encode()
    return "sha256:" + hashlib.sha256(names + np.asarray(found.vector(), "<i8").tobytes()).hexdigest()


if __name__ == "__main__":
    main()
