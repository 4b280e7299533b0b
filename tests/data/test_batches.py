"""Evidence of files read in batches is that of their rows in memory, on one machine or on a cluster."""

import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from fedrouter.data import batches as module
from fedrouter.data import forms
from fedrouter.data.batches import evidence_of
from fedrouter.data.checks import Facts, warnings_of
from fedrouter.data.read import read
from fedrouter.errors import BadInput, FedrouterError
from fedrouter.evidence import ACCURACY, COST, SECONDS, Evidence
from fedrouter.federation.families.bayes import BayesSettings
from fedrouter.pool import ModelPool

MODELS = ("big", "middle", "small")
QUICK = BayesSettings(cells=(3,))


def columns(seed=0, size=300, embedded=True, kind="list"):
    draw = np.random.default_rng(seed)
    vectors = draw.normal(size=(size // 2, 6)).astype(np.float32)[draw.integers(size // 2, size=size)]
    accuracy = draw.random(size).round(2)
    accuracy[::10] = np.nan
    found = {
        "model": pa.array(draw.choice(MODELS, size)),
        "accuracy": pa.array(accuracy, from_pandas=True),
        "cost": pa.array(10.0 ** draw.normal(-3, 1, size)),
        "seconds": pa.array(np.where(draw.random(size) < 0.2, np.nan, draw.random(size)), from_pandas=True),
        "other": pa.array(["not read"] * size),
    }
    if embedded:
        found["embedding"] = (
            pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 6)
            if kind == "fixed"
            else pa.array(vectors.tolist(), pa.list_(pa.float32()))
        )
    else:
        found["prompt"] = pa.array([f"question {number}" for number in draw.integers(size // 2, size=size)])
    return found


def write(path, table):
    table = pa.table(table)
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(table, path, row_group_size=70)
    else:
        frame = table.to_pandas()
        if path.suffix == ".csv":
            if "embedding" in frame:
                frame["embedding"] = [json.dumps(vector.tolist()) for vector in frame["embedding"]]
            frame.to_csv(path, index=False)
        else:
            frame.to_json(path, orient="records", lines=True, double_precision=15)
    return path


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr(forms, "AT_ONCE", 64)
    monkeypatch.setattr(forms, "BLOCK", 1 << 12)


def of_rows(path, features, encoder=None):
    dataset = read(path, encoder=encoder)
    evidence = Evidence.of(dataset.evaluations, features)
    return evidence + Evidence.of_unscored(dataset.unscored, features)


@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl"])
@pytest.mark.parametrize("embedded", [True, False])
def test_evidence_of_batches_is_that_of_all_rows(tmp_path, form, embedded):
    path = write(tmp_path / f"log.{form}", columns(embedded=embedded))
    evidence, log = evidence_of([path], settings=QUICK)
    dataset = read(path)
    assert evidence == of_rows(path, evidence.features)
    assert log.encoder == dataset.encoder
    assert log.digests == (dataset.digest,)
    assert log.facts.warnings() == warnings_of(dataset.evaluations, len(dataset.unscored))
    assert np.array_equal(log.facts.means, Facts.of(dataset.evaluations).means)


def test_rows_that_were_exported_twice_count_once_over_batches(tmp_path):
    once = pa.table(columns(embedded=False)).append_column("time", pa.array(np.arange(300.0)))
    paths = [write(tmp_path / f"{len(some)}.parquet", some) for some in (once, pa.concat_tables([once, once]))]
    (one, _), (two, log) = (evidence_of([path], settings=QUICK) for path in paths)
    assert one == two
    assert log.facts.repeated == read(paths[1]).repeated == 300


def test_lists_of_any_kind_are_read_alike(tmp_path):
    one = evidence_of([write(tmp_path / "one.parquet", columns(kind="fixed"))], settings=QUICK)[0]
    two = evidence_of([write(tmp_path / "two.parquet", columns())], settings=QUICK)[0]
    assert one == two


def test_rows_without_a_score_count_for_costs_and_seconds_only(tmp_path):
    path = write(tmp_path / "log.parquet", columns())
    evidence, log = evidence_of([path], settings=QUICK)
    assert log.facts.unscored == 30
    assert evidence.count.sum() == log.facts.rows.sum() == 270
    levels = evidence.moments().levels
    assert levels[:, ACCURACY, 0].sum() == 270
    assert levels[:, COST, 0].sum() == 300
    dataset = read(path)
    seconds = np.concatenate([dataset.evaluations.seconds, dataset.unscored.seconds])
    assert levels[:, SECONDS, 0].sum() == np.isfinite(seconds).sum() < 300


@pytest.mark.parametrize("sizes", [(0,), (3, 2)])
def test_cells_are_those_of_the_sampled_queries(tmp_path, sizes):
    path = write(tmp_path / "log.parquet", columns())
    cells = evidence_of([path], settings=BayesSettings(cells=sizes))[0].features.cells
    assert sizes == ((0,) if cells is None else cells.sizes)


def test_neither_files_nor_order_of_rows_change_the_evidence_and_a_folder_is_its_shards(tmp_path):
    table = pa.table(columns())
    whole = evidence_of([write(tmp_path / "whole.parquet", table)], settings=QUICK)[0]
    (tmp_path / "shards").mkdir()
    order = np.random.default_rng(1).permutation(300)
    for index, part in enumerate(np.split(order, 4)):
        write(tmp_path / "shards" / f"{index}.parquet", table.take(part))
    assert evidence_of([tmp_path / "shards"], settings=QUICK)[0] == whole


def test_the_sample_is_all_rows_of_the_queries_with_the_smallest_hashes(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MOST_CLUSTERED", 40)
    path = write(tmp_path / "log.parquet", columns(embedded=False))
    _, log = evidence_of([path], settings=QUICK)
    texts = set(log.sample.text)
    assert len(texts) == 40
    rows = read(path).evaluations
    assert len(log.sample) == sum(rows.text[query] in texts for query in rows.query)


def test_tables_and_given_pools_are_read_too(tmp_path):
    table = {"prompt": ["a", "b"], "eval_name": ["x", "x"], "small": [1.0, 0.0], "small|total_cost": [0.1, 0.2]}
    write(tmp_path / "table.parquet", table)
    write(tmp_path / "log.csv", columns(embedded=False))
    paths = [tmp_path / "log.csv", tmp_path / "table.parquet"]
    evidence, log = evidence_of(paths, settings=QUICK)
    assert evidence.pool.names == MODELS
    assert evidence.count.sum() == log.facts.rows.sum() == 272
    pool = ModelPool([*MODELS, "unused"])
    assert evidence_of(paths, pool=pool, settings=QUICK)[0].pool.names == pool.names
    with pytest.raises(BadInput, match=r"log.csv: row 1, column 'model': '\w+' is not in the pool"):
        evidence_of(paths[:1], pool=ModelPool(["other"]), settings=QUICK)


def test_progress_counts_the_rows_of_both_passes(tmp_path):
    seen = []
    evidence_of(
        [write(tmp_path / "log.csv", columns())], settings=QUICK, watch=lambda done, total: seen.append((done, total))
    )
    assert seen[0][1] == 0
    assert seen[-1] == (600, 600)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"accuracy": pa.array([None] * 300, pa.float64())}, "column 'accuracy': no row has a score"),
        ({"cost": pa.array([0.1] * 299 + [-1.0])}, "row 300, column 'cost': expected US dollars from 0"),
        ({"accuracy": pa.array([0.5] * 200 + [95.0] * 100)}, r"row 201, column 'accuracy': .* looks like percent"),
        ({"model": pa.array(["a"] * 250 + [None] * 50)}, "row 251, column 'model': expected text"),
    ],
)
@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_bad_rows_of_any_batch_are_named_as_in_the_file(tmp_path, form, change, said):
    path = write(tmp_path / f"log.{form}", columns() | change)
    with pytest.raises(BadInput, match=said):
        evidence_of([path], settings=QUICK)


def test_logs_of_different_encoders_do_not_add_up(tmp_path):
    paths = [write(tmp_path / "a.parquet", columns()), write(tmp_path / "b.csv", columns(embedded=False))]
    with pytest.raises(BadInput, match="different encoders"):
        evidence_of(paths, settings=QUICK)


def test_a_cluster_of_two_workers_finds_the_same_bits(tmp_path):
    from distributed import LocalCluster

    paths = [write(tmp_path / f"{seed}.csv", columns(seed, embedded=False)) for seed in range(4)]
    bad = write(tmp_path / "bad.csv", columns(embedded=False) | {"cost": ["x"] * 300})
    here, log = evidence_of(paths, settings=QUICK)
    seen = []
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        there, other = evidence_of(
            paths, settings=QUICK, dask=cluster.scheduler_address, watch=lambda done, total: seen.append(done)
        )
        with pytest.raises(BadInput, match=r"bad.csv: row 1, column 'cost': expected a number"):
            evidence_of([bad], settings=QUICK, dask=cluster.scheduler_address)
    assert there == here
    assert there.digest == here.digest
    assert other.facts.warnings() == log.facts.warnings()
    assert np.array_equal(other.facts.means, log.facts.means)
    assert (other.digests, other.encoder) == (log.digests, log.encoder)
    assert np.array_equal(np.sort(Facts.of(other.sample).cell), np.sort(Facts.of(log.sample).cell))
    assert seen[-1] == 2 * 4 * 300


def test_a_scheduler_that_does_not_answer_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "CONNECT", "1s")
    path = write(tmp_path / "log.parquet", columns())
    with pytest.raises(FedrouterError, match=r"tcp://127\.0\.0\.1:9: no Dask scheduler answers"):
        evidence_of([path], dask="tcp://127.0.0.1:9")


MEASURED = """
import resource, sys
from fedrouter.data.batches import evidence_of
evidence_of(sys.argv[1:2])
first = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
evidence, _ = evidence_of(sys.argv[2:])
print(int(evidence.count.sum()), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - first) * 1024)
"""


@pytest.mark.slow
def test_a_log_takes_less_memory_than_half_its_size(tmp_path):
    draw = np.random.default_rng(0)

    def write_log(name, size):
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(draw.normal(size=size * 256).astype(np.float32)), 256)
        table = {
            "embedding": vectors,
            "model": pa.array(draw.choice(MODELS, size)),
            "accuracy": pa.array(draw.random(size)),
            "cost": pa.array(draw.random(size) / 100),
        }
        pyarrow.parquet.write_table(pa.table(table), tmp_path / name)  # one row group, which must not be read whole
        return tmp_path / name

    # What a log of one batch takes is taken by any.
    small, large = write_log("small.parquet", 30_000), write_log("large.parquet", 300_000)
    found = subprocess.run(
        [sys.executable, "-c", MEASURED, small, large], capture_output=True, text=True, check=True
    ).stdout.split()
    assert int(found[0]) == 300_000
    assert int(found[1]) < large.stat().st_size / 2
