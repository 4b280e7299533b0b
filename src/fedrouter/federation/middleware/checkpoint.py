"""Checkpoints: every answered request is saved to disk, so that an interrupted run resumes and makes the same router.

Algorithms are deterministic in the replies they get. So nothing of their state is saved: after an interruption the
algorithm runs again from its start, and requests that were answered before get the recorded replies, without asking any
client.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedrouter.errors import BadInput, BadMessage
from fedrouter.federation.federation import EVERYONE, Federation, Middleware, Question
from fedrouter.federation.message import Message, Request, packed_digest
from fedrouter.federation.middleware.sums import Total
from fedrouter.federation.verbs.registry import verb_named
from fedrouter.files import replace_file

CLIENTS = "clients.json"
ENDING = ".safetensors"


class Checkpointed(Middleware):
    """A federation whose replies are kept in a folder, one file for each request, written atomically.

    The list of clients is kept as well, from the first answered request on: an algorithm that samples clients samples
    the same ones after an interruption. A client that has left by then counts as one that does not answer.
    """

    def __init__(self, federation: Federation, folder: str | Path) -> None:
        self._federation = federation
        self._folder = Path(folder)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in self._folder.glob("*.tmp"):  # from an interrupted write
            left.unlink()
        self._asked = 0
        self._clients = self._participants()

    def clients(self) -> Sequence[str]:
        return self._clients

    def ask_all(self, questions: Sequence[Question[Any]], to: Sequence[str] | None = None) -> list[Mapping[str, Any]]:
        for question in questions:
            verb_named(question.verb)  # an unknown one is refused before anything is written
        answers: list[Mapping[str, Any]] = []
        for question in questions:
            replies = self._recorded(question, to, self._asked + len(answers))
            if replies is None:
                break
            answers.append(replies)
        first, open_questions = self._asked + len(answers), questions[len(answers) :]
        self._asked += len(questions)
        if open_questions:
            self._forget_from(first)
            # All of them, even if some have left by now: a quorum is counted among all participants.
            found = self._federation.ask_all(open_questions, self._clients if to is None else to)
            if not any(self._folder.glob(f"*{ENDING}")):
                replace_file(self._folder / CLIENTS, json.dumps(self._clients).encode())
            for index, (question, replies) in enumerate(zip(open_questions, found, strict=True), first):
                wanted = _digest(question, to)
                replace_file(self._path(index, question.verb), pack_replies(question.verb, wanted, replies))
            answers += found
        return answers

    def _recorded(self, question: Question[Any], to: Sequence[str] | None, index: int) -> Mapping[str, Message] | None:
        """The replies that are recorded for the question of this number; None if there are none."""
        path = self._path(index, question.verb)
        self._refuse_other(path)
        return read_replies(path, question, _digest(question, to))

    def _path(self, index: int, verb: str) -> Path:
        return self._folder / f"{index:05}-{verb}{ENDING}"

    def _forget_from(self, index: int) -> None:
        """Remove the replies from this number on: those after an unreadable file depended on it."""
        for later in self._folder.glob(f"*{ENDING}"):
            if later.name >= f"{index:05}":
                later.unlink()

    def _participants(self) -> tuple[str, ...]:
        """The clients of the run so far, or the present ones if no request was answered yet."""
        if any(self._folder.glob(f"*{ENDING}")):
            try:
                return tuple(json.loads((self._folder / CLIENTS).read_bytes()))
            except (OSError, ValueError):
                raise BadInput(f"{self._folder / CLIENTS}: cannot be read; remove the folder to start again") from None
        return tuple(self._federation.clients())

    def _refuse_other(self, path: Path) -> None:
        number = path.name.partition("-")[0]
        if any(found != path for found in self._folder.glob(f"{number}-*{ENDING}")):
            raise _of_another_run(self._folder)


def digest(verb: str, payload: Request[Any], to: Sequence[str] | None) -> str:
    """A hash of a request: equal for the same verb, request and recipients only."""
    return packed_digest(payload.pack(), verb, None if to is None else sorted(to)).hex()


def _digest(question: Question[Any], to: Sequence[str] | None) -> str:
    return digest(question.verb, question.request, to if question.to is None else question.to)


def pack_replies(verb: str, wanted: str, replies: Mapping[str, Message]) -> bytes:
    """The replies as one safetensors file: arrays by the index of their client, the rest in its header."""
    from safetensors.numpy import save

    arrays: dict[str, npt.NDArray[Any]] = {}
    scalars = {}
    for index, (name, reply) in enumerate(replies.items()):
        parts, scalars[name] = reply.pack()
        arrays |= {f"{index}/{part}": np.ascontiguousarray(array) for part, array in parts.items()}
    header = {"verb": verb, "request": wanted, "replies": json.dumps(scalars)}
    return save(arrays, header | ({"rows": json.dumps(replies.rows)} if isinstance(replies, Total) else {}))


def read_replies(path: Path, question: Question[Any], wanted: str) -> Mapping[str, Message] | None:
    """The recorded replies to a question; None if there are none, or if the file cannot be read."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "numpy") as file:
            header = file.metadata()
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, a file is no mapping
        scalars = json.loads(header["replies"])
        asked = header["request"]
        rows = json.loads(header.get("rows", "null"))
    except (OSError, SafetensorError, ValueError, KeyError, TypeError):
        return None
    if asked != wanted:
        raise _of_another_run(path.parent)
    replies: dict[str, Message] = {}
    for index, (name, text) in enumerate(scalars.items()):
        mine = {key.partition("/")[2]: array for key, array in arrays.items() if key.partition("/")[0] == str(index)}
        try:
            replies[name] = verb_named(question.verb).read(question.request, (mine, text))
        except BadMessage:
            return None
    return replies if rows is None else Total(replies[EVERYONE], rows)


def _of_another_run(folder: Path) -> BadInput:
    return BadInput(
        f"{folder}: the checkpoint is of another run (other seed, settings, models or version); run with the ones it "
        "was made with, or remove the folder to start again"
    )
