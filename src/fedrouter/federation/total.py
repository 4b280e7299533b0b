"""Totals: what an epoch adds up to, signed, kept one by one, and checked for what no logs can have."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any, Final

import numpy as np

from fedrouter.encoders.feature_map import UNIT, map_of_width
from fedrouter.errors import BadInput, BadMessage
from fedrouter.federation.federation import LEAST_DECLARING
from fedrouter.federation.frame import Frame
from fedrouter.federation.identity import Identity, signed
from fedrouter.federation.noise import COUNT_EPSILON, ROUNDED
from fedrouter.federation.secagg.primitives import Sums, from_words, pack_words, to_words, unpack_words
from fedrouter.federation.terms import SignedTerms, Terms
from fedrouter.files import PUBLIC, replace_file, replacing
from fedrouter.pool import ModelPool
from fedrouter.release import SECOND_SHARE, Release
from fedrouter.routers.base import Router
from fedrouter.routers.registry import router_class

MANY: Final = 6.0
"""Standard deviations of noise that none of some ten thousand numbers exceeds."""
MOST_VARIANCE: Final = 2**62


@dataclass(frozen=True, eq=False)
class Total:
    """The sum of an epoch.

    Parameters
    ----------
    signed_terms : what was asked, of whom
    survivors : whose vectors are in it
    rows : new queries that they declared
    variance : of the noise in each number, in units of 2^-32
    vector : the numbers, in units of 2^-16
    router : the router that was learned, packed, for a family of the paper; empty for `bayes`, where it follows
    signature : the coordinator's
    """

    signed_terms: SignedTerms
    survivors: tuple[str, ...]
    rows: int
    variance: int
    vector: Sums
    router: bytes = b""
    signature: bytes = b""

    @property
    def terms(self) -> Terms:
        return self.signed_terms.terms

    @property
    def epoch(self) -> int:
        return self.terms.epoch

    @property
    def noise(self) -> float:
        """Standard deviation of the noise in each number, in units of one."""
        return math.sqrt(self.variance) / UNIT

    @property
    def release(self) -> Release:
        empty = Release.none(self.terms.pool, map_of_width(self.terms.dimension))
        return empty.with_vector(self.vector, self.noise)

    def sign(self, coordinator: Identity) -> Total:
        return replace(self, signature=coordinator.sign("total", *self._stated()))

    def verify(self, coordinator: bytes) -> None:
        """Raise BadMessage unless the coordinator signed both the terms and this sum."""
        terms = self.signed_terms.verified(coordinator)
        if not signed(coordinator, self.signature, "total", *self._stated()):
            raise BadMessage("a total that the coordinator did not sign")
        fits = set(self.survivors) <= terms.members.keys() and 0 <= self.variance <= MOST_VARIANCE and self.rows >= 0
        if not fits or (terms.family == "bayes" and len(self.vector) != release_size(terms)):
            raise BadMessage("a total that does not fit its terms")

    def _stated(self) -> tuple[bytes, ...]:
        numbers = json.dumps([list(self.survivors), self.rows, self.variance]).encode()
        return self.signed_terms.content, numbers, self.router, np.asarray(self.vector, "<i8").tobytes()

    def fault(self) -> str | None:
        """Why no logs of this size add up to this total; None if some may."""
        return None if self.terms.family != "bayes" else impossible(self.release, self.rows, len(self.survivors))

    def made(self) -> Router | None:
        """The router of a family of the paper that the coordinator learned in this epoch; None for `bayes`."""
        if not self.router:
            return None
        found = Frame.unpack(self.router)
        return router_class(found.text("family")).from_arrays(self.terms.pool, found.arrays("arrays"))

    @property
    def trusted(self) -> Release:
        """What counts at home: without the models that too few members declare."""
        few = [name for name, members in self.terms.models.items() if members < LEAST_DECLARING]
        return self.release.without(few)

    def pack(self) -> bytes:
        fields: dict[str, Any] = {
            **{name: getattr(self, name) for name in ("rows", "variance", "router", "signature")},
            "survivors": list(self.survivors),
            "terms": self.signed_terms.content,
            "terms_signature": self.signed_terms.signature,
            "vector": pack_words(to_words(self.vector)),
        }
        return Frame("total", fields).pack()

    @classmethod
    def unpack(cls, content: bytes) -> Total:
        found = Frame.unpack(content)
        return cls(
            SignedTerms(found.blob("terms"), found.blob("terms_signature")),
            found.names("survivors"),
            found.number("rows", 0, 2**40),
            found.number("variance", 0, MOST_VARIANCE),
            from_words(unpack_words(found.blob("vector"))),
            found.blob("router"),
            found.blob("signature"),
        )

    def save(self, folder: Path) -> None:
        """Write ``epoch-N.npz``, the numbers, and ``epoch-N.json``, whose they are and who signed them."""
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(folder / f"epoch-{self.epoch}.npz", PUBLIC) as file:
            np.savez_compressed(file, vector=self.vector, router=np.frombuffer(self.router, np.uint8))
        document = {
            "terms": json.loads(self.signed_terms.content),
            "terms_signature": self.signed_terms.signature.hex(),
            **{name: getattr(self, name) for name in ("rows", "variance")},
            "survivors": list(self.survivors),
            "signature": self.signature.hex(),
        }
        replace_file(folder / f"epoch-{self.epoch}.json", json.dumps(document, indent=1).encode(), PUBLIC)

    @classmethod
    def load(cls, folder: Path, epoch: int) -> Total:
        path = folder / f"epoch-{epoch}.json"
        try:
            document = json.loads(path.read_text())
            with np.load(path.with_suffix(".npz"), allow_pickle=False) as arrays:
                vector, router = arrays["vector"], arrays["router"].astype(np.uint8).tobytes()
            content = json.dumps(document["terms"], sort_keys=True, separators=(",", ":")).encode()
            terms = SignedTerms(content, bytes.fromhex(document["terms_signature"]))
            if vector.dtype != np.int64 or vector.ndim != 1:
                raise ValueError
            return cls(
                terms,
                tuple(document["survivors"]),
                int(document["rows"]),
                int(document["variance"]),
                vector,
                router,
                bytes.fromhex(document["signature"]),
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise BadInput(f"{path}: expected a total, as a coordinator sends it, with its .npz beside it") from None


def epochs_in(folder: Path) -> list[int]:
    """The epochs of the totals in a folder."""
    return sorted(int(path.stem.removeprefix("epoch-")) for path in folder.glob("epoch-*.json"))


def saved(folder: Path) -> list[Total]:
    """The totals in a folder, oldest first."""
    return [Total.load(folder, epoch) for epoch in epochs_in(folder)]


def verified(folder: Path, coordinator: bytes) -> list[Total]:
    """The totals in a folder, oldest first; an error if one is not signed by the coordinator with this key."""
    found = saved(folder)
    for total in found:
        try:
            total.verify(coordinator)
        except BadMessage as error:
            raise BadInput(f"{folder}, epoch {total.epoch}: {error}") from None
    return found


def sum_of(totals: Sequence[Total], window: int = 12, without: Mapping[int, Sums] = {}) -> Release | None:
    """The last totals as one release of all their models; ``without`` are exact vectors, by epoch, to leave out.

    Totals that no logs have are left out; None if none is left.
    """
    usable = [total for total in totals if total.terms.family == "bayes" and total.fault() is None][-window:]
    if not usable:
        return None
    names = dict.fromkeys(name for total in usable for name in total.terms.models)
    pool = ModelPool(list(names))
    parts = []
    for total in usable:
        own, shown = without.get(total.epoch), total.trusted
        if own is not None:
            few = replace(total, vector=own).trusted  # of the same models
            shown = shown - replace(few, noise=0.0)
        parts.append(shown.over(pool))
    return reduce(add, parts)


def release_size(terms: Terms) -> int:
    return len(Release.none(terms.pool, map_of_width(terms.dimension)).vector())


def impossible(total: Release, rows: int, members: int) -> str | None:
    """Why no logs with this many queries have these sums: checked against what members declared, and each other."""
    room = MANY * total.noise
    # Declared numbers are rounded down and have noise of their own.
    most = rows + members * (ROUNDED + MANY * math.sqrt(2) / COUNT_EPSILON)
    count = total.count
    if (count > most + 2 * room).any() or (count < -2 * room).any():
        return "counts of evaluations that the declared queries do not have"
    if count.sum() > most * math.sqrt(len(count)) + 2 * room * math.sqrt(len(count)):
        return "more evaluations in all than the declared queries have"
    products = np.abs(total.products) / UNIT
    if (products > np.maximum(count, 0)[:, None, None] / 2 + 2 * room).any():
        return "sums of accuracy or cost beyond what their counts allow"
    size = total.features.width - 1
    diagonal = np.cumsum([0, *range(size, 1, -1)])
    second = total.second / UNIT / SECOND_SHARE
    spread = room / SECOND_SHARE
    if (second[diagonal] < -spread).any() or second[diagonal].sum() > most + spread * math.sqrt(size):
        return "products of features beyond what the declared queries have"
    return None
