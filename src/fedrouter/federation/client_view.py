"""What the answer to a verb may see of its client: public facts, its memory, and its rows if the verb reads rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedrouter.errors import Refused
from fedrouter.federation.message import Message, Request
from fedrouter.federation.noise import Noise
from fedrouter.federation.privacy.memory import Memory
from fedrouter.federation.privacy.rows import PrivateRows
from fedrouter.routers.base import Router

if TYPE_CHECKING:
    from fedrouter.federation.secagg.identity import Identity


@dataclass(frozen=True)
class ClientView:
    """A client, as the answer to one request sees it.

    Parameters
    ----------
    name, encoder, weights, dimension, normalised : public: the client's name, and which embeddings it has
    memory : what it keeps from one request to the next
    identity : its long-term key, for secure aggregation; None if it has none
    private_rows : its rows; None for a verb that states that it reads none
    reply_to_mask : its reply to another verb, which must not leave unmasked; None for a verb that does not mask one
    noise : what it adds to a release; None for no noise
    follow : takes in what the coordinator shows of a run, and returns how much of it is known; None to ignore it
    in_service : the router that the client serves now, or None; None to compare a candidate with single models only
    tolerance : by how much a candidate may make the client worse off, in utility, before it objects
    without_own : a router without the client's own rows, or None if they cannot be taken out; None to leave that
    admit_cohort : called with the digests of questions, the names of all clients in their total, and whether it is
        about to be revealed, before secure aggregation sends or reveals anything; raises Refused to stay out of it
    """

    name: str
    encoder: str
    weights: str
    dimension: int
    normalised: bool
    memory: Memory
    identity: Identity | None
    private_rows: PrivateRows | None
    reply_to_mask: Callable[[str, Request[Any], int], Message] | None
    noise: Noise | None = None
    follow: Callable[[Any], int] | None = None
    admit_cohort: Callable[[Sequence[bytes], Sequence[str], bool], None] | None = None
    in_service: Callable[[], Router | None] | None = None
    tolerance: float = 0.0
    without_own: Callable[[Router], Router | None] | None = None

    @property
    def rows(self) -> PrivateRows:
        """The private rows; raises Refused if the verb states that it reads none."""
        if self.private_rows is None:
            raise Refused(f"client {self.name}: this verb states that it reads no rows, so it gets none")
        return self.private_rows

    def answer_hidden(self, verb: str, request: Request[Any], clients: int = 1) -> Message:
        """The client's reply to another verb, to be masked; raises Refused if the verb does not state that it masks."""
        if self.reply_to_mask is None:
            raise Refused(f"client {self.name}: this verb does not state that it masks the reply to another one")
        return self.reply_to_mask(verb, request, clients)
