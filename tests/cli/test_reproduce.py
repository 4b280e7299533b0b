"""`fedrouter reproduce` as a user runs it: real processes, real files."""

import json

import numpy as np
import pytest
from pyarrow import parquet

from cli import command
from fedrouter.cli.reproduce import NAMES
from fedrouter.data import split
from fedrouter.experiments.registry import EXPERIMENTS


def run(*arguments):
    return command.run_process("reproduce", *arguments)


def answer(*arguments, status=0, timeout=300):
    return command.answer_process("reproduce", *arguments, status=status, timeout=timeout)


def write_table(path, world, short_row=None):
    """A tenth of the simulated world in RouterBench's layout; another encoder's row may be too short."""
    some = world.evaluations.of_queries(np.arange(0, world.evaluations.queries, 10))
    split.write_table(path, some, world.encoder)
    if short_row is not None:
        vectors = some.embeddings.tolist()
        vectors[short_row - 1] = vectors[short_row - 1][:5]
        whole = parquet.read_table(path).append_column("house_made_embedding", [vectors])
        parquet.write_table(whole, path)
    return path


@pytest.fixture(scope="module")
def table(tmp_path_factory, world):
    return write_table(tmp_path_factory.mktemp("data") / "table.parquet", world)


@pytest.mark.slow
def test_experiments_leave_figures_numbers_and_claims_and_the_next_ones_join_them(table, tmp_path):
    out = tmp_path / "out"
    where = ("--data", table, "--seeds", 1, "--rounds", 2, "--out", out)
    first = answer("global", "heterogeneity", *where)
    assert sorted(first["measured"]) == [
        "comparison kmeans, seed 0",
        "comparison mlp, seed 0",
        "heterogeneity, seed 0",
    ]
    assert first["protocol"]["name"] == "routerbench"
    assert {claim["verdict"] for claim in first["claims"]} == {"undecided"}  # one seed
    assert (first["data"], first["encoder"], first["rounds"]) == ("table.parquet", "static", 2)
    assert list(first["experiments"]) == ["global", "heterogeneity"]
    assert "global-mlp" in {claim["name"] for claim in first["claims"]}
    for name, sheets in (("global", ["global"]), ("heterogeneity", ["queries", "clients", "models"])):
        made = {path.name for path in (out / name).iterdir()}
        assert made == {f"{name}.json"} | {f"{s}.{form}" for s in sheets for form in ("png", "svg")}
    assert (out / "claims.html").read_text().count("<svg") == 4

    second = answer("own", *where)
    assert second["measured"] == []
    assert sorted(second["found"]) == ["comparison kmeans, seed 0", "comparison mlp, seed 0"]
    assert list(second["experiments"]) == ["global", "own", "heterogeneity"]
    claims = (out / "claims.html").read_text()
    assert all(f"<code>{claim['name']}</code>" in claims for claim in second["claims"])
    assert "fedrouter reproduce global own heterogeneity --data table.parquet --seeds 1 --rounds 2" in claims
    assert str(tmp_path) not in claims

    shown = run("own", *where)
    assert "own-consistent-kmeans" in shown.stdout
    assert "claims.html" in shown.stdout
    refused = run("own", *where[:4], "--rounds", 3, "--out", out)
    assert refused.returncode == 2
    assert "rounds (2 there, 3 now)" in refused.stderr


@pytest.mark.slow
def test_what_failed_is_named_at_the_end_and_in_the_exit_status(world, tmp_path):
    table = write_table(tmp_path / "broken.parquet", world, short_row=7)
    document = answer(
        "heterogeneity", "encoders", "--data", table, "--seeds", 1, "--rounds", 2, "--out", tmp_path / "out", status=1
    )
    assert sorted(document["failed"]) == ["encoders kmeans, seed 0", "encoders mlp, seed 0"]
    assert "row 7" in document["failed"]["encoders mlp, seed 0"]
    assert list(document["experiments"]) == ["heterogeneity"]
    assert (tmp_path / "out" / "claims.html").exists()


@pytest.mark.slow
def test_everything_runs_with_the_protocol_of_the_papers_appendix(table, tmp_path):
    """On ProxRouter-Data's settings: α 0.4, uniform logging, two withheld models, personalization at α 0.04."""
    out = tmp_path / "out"
    where = ("--data", table, "--seeds", 1, "--rounds", 2, "--out", out, "--protocol", "proxrouter")
    # The theorems need many rounds and rows, however small the file is: minutes, more on busy cores.
    document = answer("all", *where, "--set", "mlp.hidden=16", "--set", "mlp.learning_rate=0.01", timeout=1200)
    assert not document["failed"]
    assert set(document["experiments"]) == set(EXPERIMENTS)
    recorded = json.loads((out / "run.json").read_text())
    protocol = recorded["protocol"]
    assert (protocol["alpha"], protocol["model_alpha"], protocol["withheld"]) == (0.4, None, 2)
    assert (protocol["personal_alpha"], protocol["new_labels"]) == (0.04, 0.65)
    assert recorded["settings"]["mlp"]["learning_rate"] == 0.01
    measured = json.loads((out / "measured" / "seed-0" / "personalization-mlp.json").read_text())
    assert measured["document"]["alpha"] == 0.04  # the workers saw the protocol
    withheld = json.loads((out / "measured" / "seed-0" / "new-models-mlp.json").read_text())["document"]["withheld"]
    assert len(withheld) == 2


@pytest.mark.slow
def test_any_registered_family_can_be_compared(table, tmp_path):
    out = tmp_path / "out"
    document = answer("global", "--router", "bayes,kmeans", "--data", table, "--seeds", 2, "--out", out)
    assert set(document["settings"]) == {"bayes", "kmeans"}
    assert {"global-bayes", "global-kmeans"} <= {claim["name"] for claim in document["claims"]}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (("--set", "kmeans.k_globl=40"), "no setting 'k_globl'; kmeans has k_local, k_global, restarts"),
        (("--set", "kmean.k_global=40"), "expected a family of bayes, kmeans, mlp"),
        (("--set", "kmeans.k_global=many"), "expected a whole number, got 'many'"),
        (("--set", "k_global=40"), "expected FAMILY.SETTING=VALUE"),
        (("--set", "bayes.folds=2"), "bayes has "),
        (("--router", "nobody"), "--router: expected bayes, kmeans, mlp"),
        (("--protocol", "sprout"), "--protocol: expected routerbench or proxrouter, got 'sprout'"),
        (("--device", "tpu"), "--device: expected cpu, cuda or auto, got 'tpu'"),
    ],
)
def test_a_wrong_option_says_what_was_expected(table, tmp_path, wrong, message):
    done = command.run("reproduce", "global", "--data", table, "--out", tmp_path / "out", *wrong)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())
    assert not (tmp_path / "out").exists()


def test_an_unknown_experiment_lists_those_there_are(table, tmp_path):
    done = run("figure-2", "--data", table, "--out", tmp_path / "out")
    assert done.returncode == 2
    assert "'figure-2': expected one of global, own, centralized" in done.stderr
    assert not (tmp_path / "out").exists()


def test_the_help_names_every_experiment():
    assert list(NAMES) == list(EXPERIMENTS)


def test_a_file_that_is_not_there_is_named(tmp_path):
    done = run("global", "--data", tmp_path / "none.parquet", "--out", tmp_path / "out", "--json")
    assert done.returncode == 2
    assert "none.parquet: no such file" in json.loads(done.stdout)["error"]
    assert not (tmp_path / "out").exists()
