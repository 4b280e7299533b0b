"""Convert messages to Flower's records, and back from records that may come from anyone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedrouter.errors import BadMessage
from fedrouter.federation.message import Message, Packed

if TYPE_CHECKING:
    from flwr.app import RecordDict

MOST_BYTES = 512 * 2**20
"""Largest size of any message, whatever the request."""
HEADERS = 4096
"""Bytes allowed for the header of each array."""


def to_records(message: Message) -> RecordDict:
    """Write a message as Flower's records: its arrays, and its scalars as one line of JSON."""
    from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

    arrays, scalars = message.pack()
    written = {name: Array(np.ascontiguousarray(array)) for name, array in arrays.items()}
    return RecordDict({"arrays": ArrayRecord(written), "scalars": ConfigRecord({"json": scalars})})


def from_records(records: RecordDict, most: int = MOST_BYTES) -> Packed:
    """Read what :func:`to_records` wrote; anything else, or anything too large, is refused before it is decoded."""
    if set(records) != {"arrays", "scalars"} or set(records.config_records) != {"scalars"}:
        raise BadMessage("message: expected arrays and scalars")
    if "arrays" not in records.array_records or set(records.config_records["scalars"]) != {"json"}:
        raise BadMessage("message: expected arrays and scalars")
    written, scalars = records.array_records["arrays"], records.config_records["scalars"]["json"]
    if not isinstance(scalars, str):
        raise BadMessage("message: its scalars are not text")
    size = len(scalars) + sum(len(array.data) for array in written.values())
    if size > most + HEADERS * (1 + len(written)):
        raise BadMessage("message: larger than its request allows")
    arrays = {}
    for name, array in written.items():
        try:
            arrays[name] = array.numpy()
        except Exception:
            # Any error of numpy's on bytes that it did not write; its text may quote them.
            raise BadMessage("message: an array that cannot be read") from None
        if type(arrays[name]) is not np.ndarray:
            raise BadMessage("message: an array that cannot be read")
    return arrays, scalars
