"""What a log is compared by: the router whose predictions count, the regions, and the models that are watched.

All of it is fixed when watching begins, and kept in the store: a new router would predict something else, and a change
of predictions must not look like a change of a model.
"""

from __future__ import annotations

import base64
import json
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedrouter.bundle import Bundle, load
from fedrouter.drift.regions import region_names, regions_of
from fedrouter.encoders import EncoderIdentity, column_stem
from fedrouter.errors import BadInput, FedrouterError
from fedrouter.evaluations import Embeddings
from fedrouter.store.records import Record
from fedrouter.store.store import Store

SETTING = "drift_reference"
ENOUGH, LOOKED_AT = 200, 5_000
"""Logged queries from which regions are made: as few, and at most as many."""


@dataclass(frozen=True, eq=False)
class Reference:
    """What watching began with.

    Parameters
    ----------
    bundle, digest : path and digest of the bundle whose router predicts
    since : when watching began
    centres, names : (K, d) regions and their names
    labels : their names without words of prompts, for logs and metrics
    models : names of the M models, as in the router's pool
    """

    bundle: str
    digest: str
    since: float
    centres: Embeddings
    names: tuple[str, ...]
    labels: tuple[str, ...]
    models: tuple[str, ...]

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.centres), len(self.models)

    def fits(self, record: Record, encoder: EncoderIdentity) -> bool:
        """Whether a scored record can be compared."""
        return record.score is not None and record.served in self.models and usable_query(record, encoder)

    def to_text(self) -> str:
        return json.dumps(
            {
                "bundle": self.bundle,
                "digest": self.digest,
                "since": self.since,
                "centres": base64.b64encode(self.centres.astype("<f4").tobytes()).decode(),
                "names": self.names,
                "labels": self.labels,
                "models": self.models,
            }
        )

    @classmethod
    def from_text(cls, text: str) -> Reference:
        try:
            values: dict[str, Any] = json.loads(text)
            names = tuple(values.pop("names"))
            raw = np.frombuffer(base64.b64decode(values.pop("centres")), "<f4")
            centres = raw.astype(np.float32).reshape(len(names), -1)
            values |= {name: tuple(values[name]) for name in ("labels", "models")}
            return cls(**values, centres=centres, names=names)
        except (KeyError, TypeError, ValueError):
            raise BadInput(
                f"the store's setting {SETTING!r} is damaged; `fedrouter log drift --restart` makes it anew"
            ) from None


def usable_query(record: Record, encoder: EncoderIdentity) -> bool:
    """Whether a record has an embedding by this encoder."""
    width = 4 * encoder.dimension
    return len(record.embedding or b"") == width and column_stem(record.encoder) == column_stem(encoder.name)


def saved_reference(store: Store) -> tuple[Reference, Bundle] | None:
    """The reference of a store and its bundle; None if watching has not begun, or the bundle is gone."""
    text = store.setting(SETTING)
    if not text:
        return None
    reference = Reference.from_text(text)
    try:
        bundle = load(reference.bundle)
    except FedrouterError:
        return None
    return (reference, bundle) if bundle.manifest["digest"] == reference.digest else None


def new_reference(store: Store, bundle: Bundle) -> Reference | None:
    """A reference with the regions of the latest scored queries of a log; None if there are too few."""
    latest = store.latest_scored(LOOKED_AT)
    records = [record for record in latest if usable_query(record, bundle.encoder)]
    if len(records) < ENOUGH:
        return None
    joined = b"".join(record.embedding or b"" for record in records)
    queries = np.frombuffer(joined, "<f4").astype(np.float32).reshape(len(records), -1)
    centres = regions_of(queries)
    tasks, texts = [record.task for record in records], [record.text for record in records]
    names, labels = region_names(centres, queries, tasks, texts), region_names(centres, queries, tasks)
    digest = bundle.manifest["digest"]
    return Reference(str(bundle.path), digest, time.time(), centres, names, labels, bundle.router.pool.names)
