"""`learn` as a newcomer runs it: files in, a table, warnings, a verdict and a bundle out; and what grows from it."""

import json
import re
import shlex

import numpy as np
import pandas
import pytest

from cli.command import answer, run
from conftest import PROJECT
from fedrouter.bundle import Provenance, load, save
from fedrouter.cli.router.verdict import suggested
from fedrouter.data import batches
from fedrouter.data.partition import partition
from fedrouter.data.read import read
from fedrouter.encoders.feature_map import map_of_width
from fedrouter.evidence import Evidence
from fedrouter.frontier.logged import Shares, Verdict
from fedrouter.frontier.outcomes import Share
from fedrouter.release import Release
from fedrouter.routers.bayes import BayesRouter

HEADER = "prompt,model,accuracy,cost"


def lines(numbers, models=("small", "large"), answers=2, seed=0):
    """Sums that every model gets right, and proofs that only a large one does."""
    draw = np.random.default_rng(seed)
    for number in numbers:
        for model in draw.permutation(models)[:answers]:
            hard = number % 2
            right = int(draw.random() < (0.9 if model != "small" or not hard else 0.1))
            prompt = f"Prove theorem {number} of topology" if hard else f"What is {number} plus {number}?"
            yield f"{prompt},{model},{right},{0.0001 if model == 'small' else 0.01}"


def write(path, rows):
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Logs of two members, and a router learned from the first."""
    folder = tmp_path_factory.mktemp("logs")
    write(folder / "bank.csv", lines(range(300)))
    write(folder / "clinic.csv", lines(range(300, 600), ("small", "large", "medium"), seed=1))
    answer("learn", folder / "bank.csv", "--out", folder / "first")
    return folder


def evidence(bundle):
    return load(bundle).router.evidence


def test_a_newcomer_gets_a_table_a_verdict_a_picture_and_a_command_that_works(folder, tmp_path):
    pytest.importorskip("matplotlib")
    done = run("learn", folder / "bank.csv", "--out", "mine", cwd=tmp_path, COLUMNS="80")
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.partition("Verdict")[0].splitlines())) <= 80
    small = next(line.split() for line in done.stdout.splitlines() if line.startswith("small"))
    assert small[1:] == ["300", "0.500", "0.1"] or float(small[2]) == pytest.approx(0.5, abs=0.1)
    assert "Verdict: Keeps" in done.stdout
    assert "of the accuracy of large for" in done.stdout
    assert (tmp_path / "mine.png").stat().st_size > 5000
    command = done.stdout.partition("Next\n")[2].strip()
    again = run(*shlex.split(command)[1:], cwd=tmp_path)
    assert (again.returncode, "utility" in again.stdout) == (0, True)


@pytest.mark.slow
def test_the_three_commands_of_readme_on_a_real_log_of_one_answer_a_query(real_data, tmp_path):
    text = (PROJECT / "README.md").read_text().partition("## I have a log")[2]
    commands = text.partition("```sh\n")[2].partition("```")[0].splitlines()
    assert [shlex.split(command)[1] for command in commands] == ["learn", "route", "evaluate"]
    rows = read(real_data / "llmrouter_mix.parquet", encoder="static").evaluations
    chosen = np.random.default_rng(0).permutation(rows.queries)[:600]
    for client in partition(rows.of_queries(np.sort(chosen)), 2, model_alpha=50.0)[:2]:
        own = client.train
        assert len(own) == own.queries
        columns = {
            "prompt": [own.text[query] for query in own.query],
            "model": [own.pool.names[model] for model in own.model],
            "accuracy": own.accuracy,
            "cost": own.cost,
        }
        pandas.DataFrame(columns).to_csv(tmp_path / ("bank.csv" if client.name.endswith("1") else "clinic.csv"))
    for command in commands:
        done = run(*shlex.split(command, comments=True)[1:], cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert ("Verdict: " in done.stdout) == (" route " not in command)
        assert not re.search(r"Dollars a query|duplicates", done.stdout)
        if "Next\n" in done.stdout:
            pasted = run(*shlex.split(done.stdout.partition("Next\n")[2].strip())[1:], cwd=tmp_path)
            assert (pasted.returncode, "utility" in pasted.stdout) == (0, True), pasted.stderr


def test_one_answer_a_query_gets_a_verdict_too(tmp_path):
    write(tmp_path / "log.csv", lines(range(1200), answers=1))
    found = answer("learn", tmp_path / "log.csv", "--out", tmp_path / "mine")
    assert found["judgement"]["propensities"] == "estimated"
    kept, cost = (found["judgement"]["shares"][name] for name in ("kept", "cost"))
    assert kept["low"] < 1.0 < kept["high"] + 0.05
    assert cost["high"] < 0.8  # half of the queries are easy


def test_what_is_suspicious_and_too_little_is_said(tmp_path):
    write(tmp_path / "log.csv", lines(range(20), models=("small",)))
    done = run("learn", tmp_path / "log.csv", "--out", tmp_path / "mine")
    assert done.returncode == 0
    assert "only one model (small): there is nothing to choose from" in done.stdout
    assert "Too few rows: 20 different queries, 50 the least." in done.stdout


def test_rows_without_a_score_count_for_costs_and_are_subtracted_too(folder, tmp_path):
    more = write(tmp_path / "more.csv", [*lines(range(600, 700)), *(f"Sum {n},small,,0.0002" for n in range(40))])
    both = answer("learn", more, "--with", folder / "first", "--out", tmp_path / "both")
    assert "rows without a score: 40; they count for costs only" in both["warnings"]
    levels, count = evidence(tmp_path / "both").levels[:, 1, 0] >> 32, evidence(tmp_path / "both").count
    assert (levels - count).tolist() == [0, 40]  # large, small
    answer("learn", "--with", tmp_path / "both", "--without", more, "--out", tmp_path / "left")
    assert evidence(tmp_path / "left") == evidence(folder / "first")
    alone = answer("learn", more, "--out", tmp_path / "alone")
    assert alone["rows"] == {"more": 200}
    assert (evidence(tmp_path / "alone").levels[:, 1, 0] >> 32).sum() == 240


def test_few_rows_make_no_verdict_and_shares_are_never_negative(tmp_path):
    write(tmp_path / "log.csv", lines(range(60), answers=1))
    done = run("learn", tmp_path / "log.csv", "--out", tmp_path / "mine")
    said = done.stdout.partition("Verdict")[2]
    assert "oo few rows" in said
    assert "-" not in said.partition(".")[0]


@pytest.mark.parametrize(("error", "said"), [(0.6, "Undecided: too few rows"), (0.2, "a coin toss between single")])
def test_an_interval_that_spans_everything_is_called_too_few_rows(error, said):
    kept, cost, toss, gain = (Share.of(value, error) for value in (0.6, 0.3, -0.07, 0.1))
    found = Verdict(
        0.95,
        "undecided",
        60,
        35.0,
        1.0,
        "known",
        {"a": 60, "b": 60},
        {},
        "a",
        1e7,
        {},
        Shares(kept, cost, toss, toss, gain),
    )
    assert said in found.sentence()
    assert "needs -" not in found.sentence()
    assert suggested(found) is None


def test_a_large_log_is_learned_in_batches_as_a_small_one_is_in_memory(folder, tmp_path, monkeypatch):
    small = answer("learn", folder / "bank.csv", folder / "clinic.csv", "--out", tmp_path / "small")
    monkeypatch.setattr(batches, "LARGE", 1)
    large = answer("learn", folder / "bank.csv", folder / "clinic.csv", "--out", tmp_path / "large")
    for what in ("rows", "models", "warnings"):
        assert large[what] == small[what]
    assert [each["rows"] for each in large["log"]] == [each["rows"] for each in small["log"]]
    assert large["judgement"]["queries"] == small["judgement"]["queries"] > 300
    assert evidence(tmp_path / "large").count.tolist() == evidence(tmp_path / "small").count.tolist()
    answer("learn", "--with", tmp_path / "large", "--without", folder / "clinic.csv", "--out", tmp_path / "left")
    assert evidence(tmp_path / "left").count.sum() == 600


@pytest.mark.slow
def test_a_dask_cluster_learns_the_same_router(folder, tmp_path, monkeypatch):
    from distributed import LocalCluster

    logs = (folder / "bank.csv", folder / "clinic.csv")
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        answer("learn", *logs, "--dask", cluster.scheduler_address, "--out", tmp_path / "there")
    monkeypatch.setattr(batches, "LARGE", 1)
    answer("learn", *logs, "--out", tmp_path / "here")
    assert evidence(tmp_path / "there") == evidence(tmp_path / "here")


def test_the_quality_that_was_measured_is_what_route_keeps(folder):
    measured = load(folder / "first").manifest["change"]["tradeoffs"]
    for quality in (0.85, 0.95):
        routed = answer("route", folder / "first", "What is 2 plus 2?", "--quality", quality)
        assert routed["tradeoff"] == measured[f"{quality:.2f}"]


def test_the_quality_that_was_asked_of_learn_is_kept_by_what_follows(folder, tmp_path):
    asked = answer("learn", folder / "bank.csv", "--quality", 0.755, "--out", tmp_path / "cheap")
    tradeoff = asked["change"]["tradeoffs"]["0.755"]
    assert answer(*shlex.split(asked["next"][0])[1:])["tradeoff"] == tradeoff
    assert answer("route", tmp_path / "cheap", "Hi", "--quality", 1)["tradeoff"] < tradeoff
    assert answer("evaluate", tmp_path / "cheap", folder / "bank.csv")["judgement"]["quality"] == 0.755
    grown = answer("learn", folder / "clinic.csv", "--with", tmp_path / "cheap", "--out", tmp_path / "grown")
    assert (grown["judgement"]["quality"], grown["change"]["quality"]) == (0.755, 0.755)
    flags = [text for name in ("small", "large") for text in ("--model", f"{name}=http://localhost:1/v1")]
    prices = [text for name in ("small", "large") for text in ("--price", f"{name}=0/0")]
    answer("init", "--bundle", tmp_path / "cheap", *flags, *prices, "--out", tmp_path / "gateway.yaml")
    assert answer("show", tmp_path / "gateway.yaml")["quality"] == 0.755


def test_propensities_of_a_log_are_what_the_verdict_goes_by(folder, tmp_path):
    rows = [f"{line},0.5" for line in lines(range(400), answers=1)]
    rows[7] = "Who knows?,small,,0.0001,0.5"  # a row without a score
    log = tmp_path / "log.csv"
    log.write_text("\n".join([f"{HEADER},propensity", *rows]) + "\n")
    learned = answer("learn", log, "--out", tmp_path / "new")
    found = answer("evaluate", folder / "first", log)
    assert {each["judgement"]["propensities"] for each in (learned, found)} == {"logged"}


def test_learning_together_is_learning_from_all_rows_and_growing_adds_the_same(folder, tmp_path):
    logs = (f"bank={folder}/bank.csv", f"clinic={folder}/clinic.csv")
    together = answer("learn", *logs, "--set", "bayes.cells=0,0", "--out", tmp_path / "both")
    assert together["rows"] == {"bank": 600, "clinic": 600}
    assert together["models"] == ["large", "medium", "small"]
    answer("learn", logs[0], "--set", "bayes.cells=0,0", "--out", tmp_path / "one")
    grown = answer("learn", logs[1], "--with", tmp_path / "one", "--out", tmp_path / "grown")
    assert (grown["version"], grown["parent"]) == (2, load(tmp_path / "one").manifest["digest"])
    one = evidence(tmp_path / "both").over(load(tmp_path / "grown").router.pool)
    assert one == evidence(tmp_path / "grown")


def test_a_log_is_subtracted_to_the_bit_and_only_one_that_is_part_of_it(folder, tmp_path):
    answer("learn", folder / "clinic.csv", "--with", folder / "first", "--out", tmp_path / "both")
    left = answer("learn", "--with", tmp_path / "both", "--without", folder / "clinic.csv", "--out", tmp_path / "left")
    assert (left["version"], left["rows"], left["judgement"]) == (3, {"bank": 600}, None)
    first = evidence(folder / "first")
    assert evidence(tmp_path / "left").over(first.pool) == first
    assert not evidence(tmp_path / "left").count[load(tmp_path / "left").router.pool.index("medium")]
    for bundle, part, said in (
        (folder / "first", ("--without", folder / "clinic.csv"), "was not learned from this file"),
        (tmp_path / "both", (folder / "bank.csv",), "would count twice"),
    ):
        refused = run("learn", *part, "--with", bundle, "--out", tmp_path / "no")
        assert (refused.returncode, said in refused.stderr) == (2, True)


def test_new_models_are_told_and_join(folder, tmp_path):
    done = run("learn", folder / "clinic.csv", "--with", folder / "first", "--out", tmp_path / "two")
    assert "new to the router: medium" in done.stdout
    assert set(load(tmp_path / "two").router.pool.names) == {"small", "large", "medium"}


def test_a_federations_router_becomes_personal_with_cells_and_a_weight_of_its_own(folder, tmp_path):
    theirs = read(folder / "clinic.csv")
    features = map_of_width(theirs.encoder.dimension)
    pool = theirs.evaluations.pool
    total = Release.of(theirs.evaluations, features)
    router = BayesRouter.of(Evidence.none(pool, features), total)
    save(tmp_path / "federated", router, theirs.encoder, Provenance.of_run("federation", "", 0, {"clinic": 600}, {}))
    own = answer("learn", folder / "bank.csv", "--with", tmp_path / "federated", "--out", tmp_path / "mine")
    mine = load(tmp_path / "mine").router
    assert mine.weight.shape == (len(mine.pool),)
    assert ((mine.weight >= 0) & (mine.weight * mine.total.count <= 500.001)).all()
    assert mine.evidence.count.sum() == 600
    assert np.array_equal(mine.total.vector(), total.vector())
    assert own["parent"] == load(tmp_path / "federated").manifest["digest"]
    more = write(tmp_path / "more.csv", lines(range(900, 1000), models=("small", "large", "new")))
    answer("learn", more, "--with", tmp_path / "mine", "--out", tmp_path / "again")
    again = load(tmp_path / "again").router
    assert again.evidence.count.sum() == 800
    assert again.total.count[again.pool.index("new")] == 0


@pytest.mark.parametrize("family", ["kmeans", pytest.param("mlp", marks=pytest.mark.slow)])
def test_the_papers_families_are_learned_and_grown_by_the_same_command(folder, family, tmp_path):
    rounds = ("--set", "mlp.rounds=1") if family == "mlp" else ()
    first = answer("learn", folder / "bank.csv", "--router", family, "--paper", *rounds, "--out", tmp_path / "one")
    assert (first["family"], first["judgement"]["decision"] != "too few rows") == (family, True)
    grown = answer("learn", folder / "clinic.csv", "--with", tmp_path / "one", "--out", tmp_path / "two")
    assert set(grown["models"]) == {"small", "large", "medium"}


def test_on_the_log_that_it_was_learned_from_evaluate_agrees_with_learn(folder):
    learned = json.loads((folder / "first" / "bundle.json").read_text())["change"]["tradeoffs"]["0.95"]
    found = answer("evaluate", folder / "first", folder / "bank.csv")
    assert found["trained"]
    assert found["judgement"]["tradeoff"] == pytest.approx(learned, rel=1e-5)


def test_show_says_what_is_in_a_bundle_a_log_and_a_config(folder, tmp_path):
    bundle = answer("show", folder / "first")
    assert (bundle["kind"], bundle["rows"]) == ("bundle", {"large": 300, "small": 300})
    log = answer("show", folder / "clinic.csv")
    assert (log["kind"], log["rows"], [each["model"] for each in log["models"]]) == (
        "log",
        600,
        ["large", "medium", "small"],
    )
    config = tmp_path / "gateway.yaml"
    config.write_text(
        "model_list:\n"
        "  - {model_name: m, params: {api_base: 'http://127.0.0.1:9/v1'}, input_price: 0, output_price: 0}\n"
    )
    assert answer("show", config)["models"] == {"m": {"input_price": 0.0, "output_price": 0.0}}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--out", "x"], "expected a LOG"),
        (["a.csv", "--without", "b.csv", "--out", "x"], "--without: expected --with BUNDLE"),
        (["a/x.csv", "b/x.csv", "--out", "x"], "two are named x; give each a name: NAME=FILE"),
        (["bank.csv", "--router", "auto", "--out", "x"], "--router auto: replaced by bayes"),
        (["bank.csv", "--router", "bayes", "--paper", "--out", "x"], "--paper: bayes is not in the paper"),
        (["bank.csv", "--with", "first", "--router", "kmeans", "--out", "x"], "the bundle says the router"),
        (["bank.csv", "--router", "kmeans", "--dask", "tcp://x", "--out", "x"], "--dask: only a new router bayes"),
        (["bank.csv", "--quality", "0", "--out", "x"], "--quality: expected a share"),
        (["bank.csv", "--out", "first"], "already exists"),
        (["nowhere.csv", "--out", "x"], "nowhere.csv: no such file"),
    ],
)
def test_what_cannot_be_learned_is_refused_in_one_line(folder, arguments, said):
    done = run("learn", *arguments, cwd=folder)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert said in done.stderr
