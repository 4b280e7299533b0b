"""Watch a gateway's log: sum scores and predictions of new feedback by day, region and model, and test them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from fedrouter.bundle import Bundle
from fedrouter.drift.days import SECONDS, DaySums
from fedrouter.drift.detector import Alarm, alarms
from fedrouter.drift.reference import SETTING, Reference, new_reference, saved_reference
from fedrouter.evaluations import Integers
from fedrouter.routers.kmeans import nearest_centre
from fedrouter.store.page import residuals
from fedrouter.store.records import Record
from fedrouter.store.store import Store

BATCH = 2_000
"""Answers whose predictions are computed at once."""


@dataclass(frozen=True, eq=False)
class Watched:
    """What a log says about its models: ``sums`` by the regions and models of ``reference``, and ``alarms``."""

    reference: Reference
    sums: DaySums
    alarms: list[Alarm]

    def describe(self, alarm: Alarm) -> dict[str, Any]:
        """An alarm with the names of its region and model; ``label`` is the region's for logs and metrics."""
        reference = self.reference
        return {
            "model": reference.models[alarm.model],
            "region": reference.names[alarm.region],
            "label": reference.labels[alarm.region],
            **alarm.to_json(),
        }

    def to_json(self) -> dict[str, Any]:
        reference, sums = self.reference, self.sums
        totals = (part.sum(axis=0) for part in (sums.count, sums.score, sums.predicted))
        cells = [
            {
                "region": name,
                "model": model,
                "answers": int(count),
                "score": score / count,
                "predicted": predicted / count,
            }
            for (name, model), count, score, predicted in zip(
                ((name, model) for name in reference.names for model in reference.models),
                *(total.ravel().tolist() for total in totals),
                strict=True,
            )
            if count
        ]
        return {
            "since": reference.since,
            "bundle": reference.digest,
            "regions": list(reference.names),
            "models": list(reference.models),
            "days": sums.days,
            "alarms": [self.describe(alarm) for alarm in self.alarms],
            "cells": cells,
        }


def watch(store: Store, in_service: Bundle | None) -> Watched | None:
    """Read what was scored since the last time, and test; None until there is enough to make regions from.

    The router ``in_service`` becomes the reference if there is none yet, if the bundle of the one before is gone, or if
    the encoder was changed since.
    """
    found = saved_reference(store)
    if found is not None and in_service is not None and not _same_encoder(found[1], in_service):
        found = None
    if found is None:
        begun = None if in_service is None else new_reference(store, in_service)
        if begun is None or in_service is None:
            return None
        with store.writing() as connection:
            residuals.forget(connection)
        store.put_setting(SETTING, begun.to_text())
        found = begun, in_service
    reference, bundle = found
    _read(store, reference, bundle)
    sums = _sums(store, reference)
    return Watched(reference, sums, alarms(sums))


def restart(store: Store) -> None:
    """Forget the past: what models do from now on, as the router in service predicts it, is what they are."""
    with store.writing() as connection:
        residuals.forget(connection)
    store.put_setting(SETTING, None)


def _same_encoder(one: Bundle, other: Bundle) -> bool:
    return (one.encoder.name, one.encoder.dimension) == (other.encoder.name, other.encoder.dimension)


def _read(store: Store, reference: Reference, bundle: Bundle) -> None:
    """Sum the days anew in which an answer was scored since the last time."""
    with store.reading() as connection:
        days, until = residuals.unread(connection)
    for day in days:
        # A day of the log before the reference began counts, too: regions were made without looking at scores.
        records = store.rows(day * SECONDS, (day + 1) * SECONDS, scored_only=True)
        rows = _day(day, reference, bundle, records)
        with store.writing() as connection:
            residuals.put_day(connection, day, rows)
    if days:
        with store.writing() as connection:
            residuals.put_read(connection, until)


def _day(day: int, reference: Reference, bundle: Bundle, records: Iterator[Record]) -> list[residuals.Row]:
    total = DaySums.zeros(day, 1, *reference.shape)
    usable = (record for record in records if reference.fits(record, bundle.encoder))
    while batch := list(islice(usable, BATCH)):
        queries = np.frombuffer(b"".join(record.embedding or b"" for record in batch), "<f4")
        queries = queries.astype(np.float32).reshape(len(batch), -1)
        model = np.array([reference.models.index(str(record.served)) for record in batch])
        predicted = bundle.router.estimate(queries).accuracy[np.arange(len(batch)), model]
        score = np.array([record.score for record in batch], np.float64)
        when: Integers = np.full(len(batch), day)
        region = nearest_centre(queries, reference.centres)
        total = total + DaySums.of(when, region, model, score, predicted.astype(np.float64), reference.shape)
    return [
        (
            day,
            int(region),
            reference.models[model],
            int(total.count[0, region, model]),
            float(total.score[0, region, model]),
            float(total.predicted[0, region, model]),
        )
        for region, model in zip(*np.nonzero(total.count[0]), strict=True)
    ]


def _sums(store: Store, reference: Reference) -> DaySums:
    with store.reading() as connection:
        rows = residuals.all_sums(connection)
    if not rows:
        return DaySums.zeros(int(reference.since // SECONDS), 1, *reference.shape)
    found = DaySums.zeros(rows[0][0], rows[-1][0] - rows[0][0] + 1, *reference.shape)
    for day, region, name, count, score, predicted in rows:
        if region < len(reference.names) and name in reference.models:
            place = day - found.first, region, reference.models.index(name)
            found.count[place], found.score[place], found.predicted[place] = count, score, predicted
    return found
