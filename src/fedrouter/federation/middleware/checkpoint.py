"""Every answered question on disk, so that a run that was killed goes on where it was and makes the same router.

Algorithms are deterministic in what they are answered. So nothing of theirs is saved: after a kill the algorithm runs
again from its start, and questions that were answered before get the recorded answers, with no client asked.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from fedrouter.errors import BadInput, BadMessage
from fedrouter.federation.federation import Federation
from fedrouter.federation.message import Message, Reply, Request
from fedrouter.federation.verbs.messages import VERBS
from fedrouter.files import replace_file

CLIENTS = "clients.json"
ENDING = ".safetensors"


class Checkpointed:
    """A federation whose answers are kept in a folder, one file a question, each written whole or not at all.

    Who takes part is kept as well, from the first answered question on: an algorithm that draws among the clients draws
    the same ones after a kill. A client that is gone by then is one that does not answer.
    """

    def __init__(self, federation: Federation, folder: str | Path) -> None:
        self._federation = federation
        self._folder = Path(folder)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in self._folder.glob("*.tmp"):  # a kill in the middle of writing
            left.unlink()
        self._asked = 0
        self._clients = self._take_part()

    def clients(self) -> Sequence[str]:
        return self._clients

    def ask(self, verb: str, payload: Request[Reply], to: Sequence[str] | None = None) -> Mapping[str, Reply]:
        wanted = digest(verb, payload, to)
        path = self._folder / f"{self._asked:05}-{verb}{ENDING}"
        self._asked += 1
        self._refuse_other(path)
        replies = cast("Mapping[str, Reply] | None", _read(path, verb, wanted))
        if replies is None:
            for later in self._folder.glob(f"*{ENDING}"):
                if later.name >= path.name:  # what follows a file that cannot be read followed from what it said
                    later.unlink()
            # All of them, also who may be gone by now: a quorum is counted among those who take part.
            replies = self._federation.ask(verb, payload, self._clients if to is None else to)
            if not any(self._folder.glob(f"*{ENDING}")):
                replace_file(self._folder / CLIENTS, json.dumps(self._clients).encode())
            replace_file(path, _packed(verb, wanted, replies))
        return replies

    def _take_part(self) -> tuple[str, ...]:
        """Those of the run so far; those who are there now, if no question was ever answered."""
        if any(self._folder.glob(f"*{ENDING}")):
            try:
                return tuple(json.loads((self._folder / CLIENTS).read_bytes()))
            except (OSError, ValueError):
                raise BadInput(f"{self._folder / CLIENTS}: cannot be read; remove the folder to start anew") from None
        return tuple(self._federation.clients())

    def _refuse_other(self, path: Path) -> None:
        number = path.name.partition("-")[0]
        if any(found != path for found in self._folder.glob(f"{number}-*{ENDING}")):
            raise _of_another_run(self._folder)


def digest(verb: str, payload: Request[Any], to: Sequence[str] | None) -> str:
    """The fingerprint of a question: equal for the same verb, request and addressees, and for nothing else."""
    arrays, scalars = payload.pack()
    found = hashlib.sha256(json.dumps([verb, scalars, None if to is None else sorted(to)]).encode())
    for name, array in sorted(arrays.items()):
        found.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def _packed(verb: str, wanted: str, replies: Mapping[str, Message]) -> bytes:
    """The replies as one safetensors file: arrays by the place of their client, the rest in its header."""
    from safetensors.numpy import save

    arrays: dict[str, npt.NDArray[Any]] = {}
    scalars = {}
    for place, (name, reply) in enumerate(replies.items()):
        parts, scalars[name] = reply.pack()
        arrays |= {f"{place}/{part}": np.ascontiguousarray(array) for part, array in parts.items()}
    return save(arrays, {"verb": verb, "request": wanted, "replies": json.dumps(scalars)})


def _read(path: Path, verb: str, wanted: str) -> dict[str, Message] | None:
    """The replies of a question that was answered before; None if it was not, or if the file cannot be read."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "numpy") as file:
            header = file.metadata()
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, a file is no mapping
        scalars = json.loads(header["replies"])
        asked = header["request"]
    except (OSError, SafetensorError, ValueError, KeyError, TypeError):
        return None
    if asked != wanted:
        raise _of_another_run(path.parent)
    replies = {}
    for place, (name, text) in enumerate(scalars.items()):
        mine = {key.partition("/")[2]: array for key, array in arrays.items() if key.partition("/")[0] == str(place)}
        try:
            replies[name] = VERBS[verb][1].unpack((mine, text))
        except BadMessage:
            return None
    return replies


def _of_another_run(folder: Path) -> BadInput:
    return BadInput(
        f"{folder}: the checkpoint is of another run (other seed, settings, models or version); run with the ones it "
        "was made with, or remove the folder to start anew"
    )
