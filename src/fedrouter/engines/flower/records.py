"""How a message of ours is written as Flower's records, and read back from records that anyone may have written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedrouter.errors import BadMessage
from fedrouter.federation.message import Message, Packed

if TYPE_CHECKING:
    from flwr.app import RecordDict

MOST_BYTES = 512 * 2**20
"""No message may be larger, whatever was asked."""
HEADERS = 4096
"""Room for how an array is written, beside its numbers."""


def to_records(message: Message) -> RecordDict:
    """A message as Flower carries it: its arrays, and its scalars as one line of JSON."""
    from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

    arrays, scalars = message.pack()
    written = {name: Array(np.ascontiguousarray(array)) for name, array in arrays.items()}
    return RecordDict({"arrays": ArrayRecord(written), "scalars": ConfigRecord({"json": scalars})})


def from_records(records: RecordDict, most: int = MOST_BYTES) -> Packed:
    """What :func:`to_records` packed; anything else, or anything too large, is refused before it is looked into."""
    if set(records) != {"arrays", "scalars"} or set(records.config_records) != {"scalars"}:
        raise BadMessage("message: expected arrays and scalars")
    if "arrays" not in records.array_records or set(records.config_records["scalars"]) != {"json"}:
        raise BadMessage("message: expected arrays and scalars")
    written, scalars = records.array_records["arrays"], records.config_records["scalars"]["json"]
    if not isinstance(scalars, str):
        raise BadMessage("message: its scalars are no text")
    size = len(scalars) + sum(len(array.data) for array in written.values())
    if size > most + HEADERS * (1 + len(written)):
        raise BadMessage("message: larger than its request allows")
    arrays = {}
    for name, array in written.items():
        try:
            arrays[name] = array.numpy()
        except Exception:
            # Whatever numpy makes of bytes it did not write; its words may quote them.
            raise BadMessage("message: an array that cannot be read") from None
        if type(arrays[name]) is not np.ndarray:
            raise BadMessage("message: an array that cannot be read")
    return arrays, scalars
