"""The verb ``cluster``: centroids of a client's queries. Algorithm 2, lines 3-4."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from fedrouter.evaluations import Embeddings, Integers
from fedrouter.federation.client_view import ClientView
from fedrouter.federation.clustering import cluster
from fedrouter.federation.message import Message, Request, packed_digest
from fedrouter.federation.plausibility import MOST_WIDTH, SHAPE, row_fault
from fedrouter.federation.privacy.disclosure import DisclosureControl, query_keys
from fedrouter.federation.privacy.memory import Arrays, Memory
from fedrouter.federation.secagg.byte_arrays import MOST_SIGNATURE, Bytes
from fedrouter.federation.seeds import derive
from fedrouter.federation.verbs.verb import (
    AlwaysSent,
    MinimumSizes,
    NotASum,
    ShowsEmbeddings,
    Verb,
)
from fedrouter.routers.kmeans import nearest_centre

if TYPE_CHECKING:
    from fedrouter.federation.secagg.identity import Identity, Roster

MOST_CENTRES = 256
"""A reply may always have this many centres: centroids sent before are sent again, even if fewer are asked for."""
UNSIGNED: Bytes = np.frombuffer(b"", np.uint8)
"""The signature of a client without a long-term key; one array for the replies of all."""


@dataclass(frozen=True, eq=False)
class ClusterRequest(Request["Centroids"]):
    """Line 3: how to cluster."""

    clusters: Annotated[int, "number of clusters k"]
    restarts: Annotated[int, "number of restarts of K-means"]
    iterations: Annotated[int, "maximum number of iterations"]
    seed: Annotated[int, "random seed"]

    def check(self) -> None:
        self.require(self.clusters > 0 and self.restarts > 0 and self.iterations > 0, "counts must be above 0")


@dataclass(frozen=True, eq=False)
class Centroids(Message):
    """Line 4: the centres of the client's clusters, and how many queries each has."""

    centres: Annotated[Embeddings, "(k, d) float32: mean embedding of each cluster"]
    sizes: Annotated[Integers, "(k,) int64: number of queries nearest to each centre"]
    signature: Annotated[Bytes, "(n,) uint8: signature by its long-term key, empty if it has none"] = field(
        default_factory=lambda: UNSIGNED
    )

    def check(self) -> None:
        self.require_array("signature", np.uint8, (None,))
        self.require(len(self.signature) <= MOST_SIGNATURE, "signature is too long")
        self.require_array("centres", np.float32, (None, None))
        self.require_array("sizes", np.int64, (len(self.centres),))
        self.require((self.sizes > 0).all(), "sizes must be above 0")


def signed(request: Request[Any], reply: Centroids, name: str, identity: Identity) -> Centroids:
    """The reply with the client's signature, by which other clients of a run know whose centroids they are shown."""
    signature = identity.sign(*_statement(request, reply, name))
    return replace(reply, signature=np.frombuffer(signature, np.uint8))


def is_signed(request: Request[Any], reply: Centroids, name: str, roster: Identity | Roster) -> bool:
    """Whether the client ``name``, whose key must be on the ``roster``, has signed this reply to this request."""
    return roster.signed(name, reply.signature.tobytes(), *_statement(request, reply, name))


def _statement(request: Request[Any], reply: Centroids, name: str) -> tuple[str, ...]:
    content: Arrays = {"centres": reply.centres, "sizes": reply.sizes}
    return "centroids", name, packed_digest((content, request.pack()[1])).hex()


def answer(client: ClientView, request: ClusterRequest) -> Centroids:
    """Clusters of every query that has an evaluation."""
    queries, control = client.rows.queries(), client.rows.control
    seed = derive(request.seed, client.name)
    if control:
        return _released_once(queries, request, seed, control, client.memory)
    if not len(queries):
        return Centroids(queries, np.zeros(0, np.int64))
    centres = cluster(queries, request.clusters, request.restarts, request.iterations, seed)
    sizes = np.bincount(nearest_centre(queries, centres), minlength=len(centres))
    return Centroids(centres[sizes > 0], sizes[sizes > 0])


def _released_once(
    queries: Embeddings, request: ClusterRequest, seed: int, control: DisclosureControl, memory: Memory
) -> Centroids:
    """The centroids sent before, until enough queries have come or gone: two clusterings disclose more than one."""
    if not len(queries):
        control.applied.add("cluster")
        return Centroids(queries, np.zeros(0, np.int64))
    keys = np.unique(query_keys(queries))
    before = memory.recall("centroids")
    if before is None or not control.few_changes(keys, before["keys"]):
        wanted = control.clusters(len(keys), request.clusters)
        centres = cluster(queries, wanted, request.restarts, request.iterations, seed)
        centres, sizes = control.merged(queries, centres)
        before = {"keys": keys, "centres": centres, "sizes": sizes}
        memory.remember("centroids", before)
    return Centroids(before["centres"], before["sizes"])


def faults(request: ClusterRequest, reply: Centroids) -> str | None:
    if len(reply.centres) > max(request.clusters, MOST_CENTRES) or reply.centres.shape[1] > MOST_WIDTH:
        return SHAPE
    return row_fault(reply.sizes)


def most_bytes(request: ClusterRequest) -> int:
    """256 bytes, and 4d + 8 for each centre; at most 256 centres, or as many as asked for, of d at most 8,192."""
    return max(request.clusters, MOST_CENTRES) * (4 * MOST_WIDTH + 8) + MOST_SIGNATURE


def _width(reply: Centroids) -> int | None:
    return int(reply.centres.shape[1]) if len(reply.centres) else None


def _length(reply: Centroids) -> float | None:
    """Length of the longest centre."""
    return float(np.linalg.norm(reply.centres.astype(np.float64), axis=1).max()) if len(reply.centres) else None


VERB = Verb(
    name="cluster",
    request=ClusterRequest,
    reply=Centroids,
    purpose="Find where the clients' queries lie, so that the server can merge their clusters into global ones.",
    leaves="Mean embeddings of clusters of the client's queries, and the number of queries in each.",
    answer=answer,
    disclosure=MinimumSizes(
        ("cluster",),
        "each centroid is the mean of enough different queries, each counted once; smaller clusters join the nearest; "
        "the same centroids are sent again until that many queries have come or gone",
    ),
    secure_sum=NotASum("centroids of different clients are different points, not parts of a sum"),
    withheld=AlwaysSent("no centroids are a few bytes, and clients sign them"),
    faults=faults,
    most_bytes=most_bytes,
    embeddings=ShowsEmbeddings(_width, _length),
)
