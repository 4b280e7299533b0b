"""Centroids are kept from run to run: a question about them that was answered before gets the same replies.

Clients withhold sums around new centres that differ too little from sums sent before. So a router that is learned again
around other centres hears fewer rows each time; around the same ones it hears all of them, and the new ones as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrouter.federation.federation import Federation, Middleware, Question
from fedrouter.federation.message import packed_digest
from fedrouter.federation.middleware.checkpoint import ENDING, pack_replies, read_replies
from fedrouter.files import make_private_folder, replace_file

VERB = "cluster"
Signed = Callable[[Any, Any, str], bool]
"""Whether the reply to a request has the signature of the client of this name."""


@dataclass
class KeptCentroids(Middleware):
    """A federation whose replies about centroids are kept in a folder, one file for each question.

    They stay as they are while clients come and go, as the centres of a router do when clients join or leave it, until
    half of those that are asked had no part in them. Stands inside a checkpoint, so that a resumed run gets what it got
    before; and inside what is shown of a run.

    Parameters
    ----------
    folder : where replies are kept
    fresh : ask the clients whatever was answered before; their replies are kept
    report : called with the names of the clients whose earlier replies are used
    signed : whether a reply has its client's signature; other clients accept it only then. One that has not, since the
        client has another key now, is asked for again, or left out if its client is not there
    encoder : whose embeddings the centroids are among; nothing is kept before it is set
    """

    federation: Federation
    folder: Path
    fresh: bool
    report: Callable[[Sequence[str]], None]
    signed: Signed | None = None
    encoder: str = ""

    def clients(self) -> Sequence[str]:
        return self.federation.clients()

    def ask_all(self, questions: Sequence[Question[Any]], to: Sequence[str] | None = None) -> list[Mapping[str, Any]]:
        found = {place: self._kept(question, to) for place, question in enumerate(questions)}
        open_places = [place for place, replies in found.items() if replies is None]
        if open_places:
            asked = self.federation.ask_all([questions[place] for place in open_places], to)
            for place, replies in zip(open_places, asked, strict=True):
                self._keep(questions[place], replies)
                found[place] = replies
        return [replies for replies in found.values() if replies is not None]

    def _kept(self, question: Question[Any], to: Sequence[str] | None) -> Mapping[str, Any] | None:
        if self.fresh or not self._concerns(question):
            return None
        replies: Mapping[str, Any] | None = read_replies(self._path(question), question, self._digest(question))
        recipients = question.to or to or self.clients()
        if replies is not None and self.signed:
            replies = self._signed_now(question, replies, recipients)
        if replies is None or 2 * sum(name in replies for name in recipients) <= len(recipients):
            return None
        self.report(list(replies))
        return replies

    def _signed_now(
        self, question: Question[Any], replies: Mapping[str, Any], recipients: Sequence[str]
    ) -> Mapping[str, Any]:
        """The replies with signatures that are valid now."""
        assert self.signed
        stale = [name for name, reply in replies.items() if not self.signed(question.request, reply, name)]
        there = tuple(name for name in stale if name in recipients)
        if not stale:
            return replies
        fresh = self.federation.ask(VERB, question.request, there) if there else {}
        # In the same order: centres depend on it, and around other ones clients would withhold rows.
        valid = {name: fresh.get(name, reply) for name, reply in replies.items() if name in fresh or name not in stale}
        self._keep(question, valid)
        return valid

    def _keep(self, question: Question[Any], replies: Mapping[str, Any]) -> None:
        if replies and self._concerns(question):
            make_private_folder(self.folder)
            replace_file(self._path(question), pack_replies(VERB, self._digest(question), replies))

    def _concerns(self, question: Question[Any]) -> bool:
        return bool(self.encoder) and question.verb == VERB

    def _digest(self, question: Question[Any]) -> str:
        return packed_digest(question.request.pack(), VERB, self.encoder).hex()

    def _path(self, question: Question[Any]) -> Path:
        return self.folder / f"{self._digest(question)}{ENDING}"
