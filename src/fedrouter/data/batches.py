"""Evidence of logs of any size, read twice in batches: here, or by the workers of a Dask cluster.

The first pass finds the models' names and the queries around which cells lie: those with the smallest hashes, a sample
of all distinct queries that depends neither on the order of rows nor on who read them. The second pass adds up
evidence. Both add up over files, so machines that read a file each find the same integers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from fedrouter.data.checks import Facts, Hashes, hashed_queries, hashed_texts, hashed_vectors, total_facts
from fedrouter.data.forms import DataFile, batches
from fedrouter.data.read import (
    EMBEDDING,
    LOG,
    embedding_column,
    embeddings_of,
    encoded_column,
    layout_of,
    read,
    read_log,
)
from fedrouter.data.source import file_digest, parts_of
from fedrouter.encoders import STATIC, EncoderIdentity
from fedrouter.encoders.cache import encode_texts
from fedrouter.encoders.cells import MOST_CLUSTERED
from fedrouter.encoders.encoder import Watch
from fedrouter.encoders.feature_map import FeatureMap
from fedrouter.errors import BadInput, FedrouterError
from fedrouter.evaluations import Embeddings, Evaluations, Unscored
from fedrouter.evidence import Evidence
from fedrouter.federation.families.bayes import BayesSettings, map_of
from fedrouter.pool import ModelPool

LARGE: Final = 1 << 29
"""Bytes of files from which on it is better not to hold all rows in memory."""
CONNECT: Final = "10s"
READ: Final = (*LOG, "prompt", "question", "query", "embedding", "seconds", "propensity", "time", "id")
"""Columns of a log that are read, beside those of an encoder's embeddings."""

Tick = Callable[[int], None]


@dataclass(frozen=True, eq=False)
class Sketch:
    """What the first pass finds: models, rows, the encoder, and a sample of queries in the order of their hashes.

    ``embeddings`` ``(k, d)`` are of the queries with the k smallest hashes ``key`` ``(k,)``.
    """

    models: frozenset[str]
    rows: int
    encoder: EncoderIdentity
    key: Hashes
    embeddings: Embeddings

    def __add__(self, other: Sketch) -> Sketch:
        encoder = _same_encoder(self.encoder, other.encoder)
        key, embeddings = _smallest(self.key, self.embeddings, other.key, other.embeddings)
        return Sketch(self.models | other.models, self.rows + other.rows, encoder, key, embeddings)


@dataclass(frozen=True, eq=False)
class LargeLog:
    """What is known of files beside their evidence.

    ``sample`` has all evaluations of up to 20,000 queries, for a verdict; ``digests`` and ``rows`` are the files'.
    """

    facts: Facts
    encoder: EncoderIdentity
    sample: Evaluations
    digests: tuple[str, ...]
    rows: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class _Sums:
    """What the second pass adds up: evidence, facts, and the sampled evaluations."""

    evidence: Evidence
    facts: Facts
    sample: Evaluations
    digest: str


def evidence_of(
    paths: Sequence[str | Path],
    encoder: str | None = None,
    pool: ModelPool | None = None,
    settings: BayesSettings = BayesSettings(),
    watch: Watch | None = None,
    dask: str | None = None,
) -> tuple[Evidence, LargeLog]:
    """The evidence of files, with cells of their queries, and what else is known of them.

    Parameters
    ----------
    paths : logs or tables; a folder of parquet is its shards. Logs are read in batches, tables whole
    encoder, pool : as for :func:`fedrouter.data.read.read`
    watch : called with the rows that were read in both passes, and with how many there will be (0 while unknown)
    dask : address of a Dask scheduler whose workers see the same files
    """
    files = [part for path in paths for part in parts_of(Path(path))]
    if not files:
        raise BadInput("nothing to learn from: expected at least one log")
    read_so_far = [0, 0]

    def tick(rows: int) -> None:
        read_so_far[0] += rows
        if watch is not None:
            watch(*read_so_far)

    with _workers(dask, tick) as each:
        sketch = reduce(add, each(partial(_sketch, encoder=encoder, pool=pool), files, lambda found: found.rows))
        if not len(sketch.key):
            raise BadInput(f"{', '.join(map(str, paths))}: column 'accuracy': no row has a score")
        read_so_far[:] = [sketch.rows, 2 * sketch.rows]
        models = pool or ModelPool(sorted(sketch.models))
        features = map_of(sketch.embeddings, settings)
        work = partial(_sums, encoder=encoder, pool=models, features=features, last=int(sketch.key[-1]))
        parts = list(each(work, files, lambda found: found.facts.every))
    facts = total_facts([part.facts for part in parts])
    sample = Evaluations.concatenate([part.sample for part in parts])
    rows = tuple(int(part.facts.rows.sum()) for part in parts)
    evidence = reduce(add, (part.evidence for part in parts))
    return evidence, LargeLog(facts, sketch.encoder, sample, tuple(part.digest for part in parts), rows)


@contextmanager
def _workers(dask: str | None, tick: Tick) -> Iterator[Any]:
    """How to do some work for each file: one after the other here, or on a Dask cluster, in order in any case."""
    if dask is None:
        yield lambda work, files, rows: (work(file, tick=tick) for file in files)
        return
    try:
        from distributed import Client
    except ImportError:
        raise FedrouterError("--dask needs the package distributed: pip install 'fedrouter[dask]'") from None
    try:
        cluster: Any = Client  # untyped
        client = cluster(dask, timeout=CONNECT, set_as_default=False)
    except (OSError, ValueError) as error:
        raise FedrouterError(f"{dask}: no Dask scheduler answers ({str(error).splitlines()[0][:120]})") from None

    def spread(work: Callable[[Path], Any], files: list[Path], rows: Callable[[Any], int]) -> Iterator[Any]:
        # Impure: the same path may have other content by the next call.
        for future in client.map(work, [file.absolute() for file in files], pure=False):
            found = future.result()
            future.release()
            tick(rows(found))
            yield found

    with client:
        yield spread


def _sketch(file: Path, encoder: str | None, pool: ModelPool | None, tick: Tick = lambda rows: None) -> Sketch:
    """The first pass over a file."""
    if not _is_log(file):
        dataset = read(file, encoder=encoder, pool=pool)
        evaluations = dataset.evaluations
        tick(len(evaluations))
        key, queries = _smallest(hashed_queries(evaluations), evaluations.embeddings)
        names = frozenset(evaluations.pool.names)
        return Sketch(names, len(evaluations), dataset.encoder, key, queries)
    names, count, identity = frozenset[str](), 0, None
    key, payload = np.zeros(0, np.uint64), np.zeros(0, object)
    for batch in _log_batches(file):
        names |= frozenset(batch.words("model")) if pool is None else frozenset()
        scored = np.flatnonzero(~np.isnan(batch.numbers("accuracy")))
        some, sampled, found = _queries(batch, encoder, scored, key[-1] if len(key) == MOST_CLUSTERED else None)
        identity = found if identity is None or found is None else _same_encoder(identity, found)
        key, payload = _smallest(key, payload, some, sampled) if len(key) else _smallest(some, sampled)
        count += batch.rows
        tick(batch.rows)
    if payload.dtype == object:
        payload, identity = encode_texts(encoder or STATIC, payload.tolist())
    assert identity is not None
    return Sketch(names, count, identity, key, np.asarray(payload, np.float32))


def _queries(
    batch: DataFile, encoder: str | None, scored: npt.NDArray[np.intp], last: np.uint64 | None
) -> tuple[Hashes, npt.NDArray[Any], EncoderIdentity | None]:
    """Hashes of a batch's scored rows that may be sampled, their texts or embeddings, and who made the latter."""
    values: npt.NDArray[Any]
    if embedding_column(batch, encoder)[0] is None and "prompt" in batch.names:
        identity, values = None, np.array(batch.words(encoded_column(batch)), object)
    else:
        values, identity = embeddings_of(batch, encoder)
    named = "prompt" in batch.names
    key = hashed_texts(np.array(batch.words("prompt"), object)[scored]) if named else hashed_vectors(values[scored])
    small = np.flatnonzero(key <= last) if last is not None else np.arange(len(key))
    return key[small], values[scored[small]], identity


def _sums(
    file: Path,
    encoder: str | None,
    pool: ModelPool,
    features: FeatureMap,
    last: int,
    tick: Tick = lambda rows: None,
) -> _Sums:
    """The second pass over a file."""
    evidence = Evidence.none(pool, features)
    facts, sample = [], []
    for rows, unscored, repeated in _evaluations(file, encoder, pool):
        evidence += Evidence.of(rows, features)
        if unscored is not None:
            evidence += Evidence.of_unscored(unscored, features)
        missing = 0 if unscored is None else len(unscored)
        facts.append(Facts.of(rows, missing, repeated))
        chosen = hashed_queries(rows) <= np.uint64(last)
        sample.append(rows.take(np.flatnonzero(chosen[rows.query])))
        tick(len(rows) + missing + repeated)
    return _Sums(evidence, total_facts(facts), Evaluations.concatenate(sample), file_digest(file))


def _evaluations(
    file: Path, encoder: str | None, pool: ModelPool
) -> Iterator[tuple[Evaluations, Unscored | None, int]]:
    """The evaluations of a file in blocks: a log's batches, or a whole table."""
    if _is_log(file):
        seen: list[Hashes] = []
        for batch in _log_batches(file):
            yield read_log(batch, encoder, pool, seen=seen)[:3]
    else:
        yield read(file, encoder=encoder, pool=pool).evaluations.over(pool), None, 0


def _log_batches(file: Path) -> Iterator[DataFile]:
    return batches(file, lambda name: name in READ or name.endswith(EMBEDDING))


def _is_log(file: Path) -> bool:
    return layout_of(next(batches(file))) is None


def _smallest(key: Hashes, values: npt.NDArray[Any], *more: npt.NDArray[Any]) -> tuple[Hashes, npt.NDArray[Any]]:
    """The smallest distinct hashes, and the first value of each."""
    if more:
        key, values = np.concatenate([key, more[0]]), np.concatenate([values, more[1]])
    distinct, first = np.unique(key, return_index=True)
    return distinct[:MOST_CLUSTERED], values[first[:MOST_CLUSTERED]]


def _same_encoder(one: EncoderIdentity, other: EncoderIdentity) -> EncoderIdentity:
    """The encoder of both; vectors have length one if those of both have."""
    if (one.name, one.dimension, one.weights) != (other.name, other.dimension, other.weights):
        raise BadInput(f"embeddings of different encoders cannot be learned together: {one} and {other}")
    return one if other.normalised else other
