"""The commands as a user runs them: real files, JSON on stdout and nothing else there."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

from cli.command import answer, answer_process, run, run_process
from fedrouter.data.split import write_table

MEASURES = {"auc", "aiq", "cost_to_match", "max_accuracy", "min_cost", "max_cost"}


@pytest.fixture(scope="module")
def table(tmp_path_factory, world):
    """A tenth of the simulated world as a data file in RouterBench's layout."""
    some = world.evaluations.of_queries(np.arange(0, world.evaluations.queries, 10))
    return write_table(tmp_path_factory.mktemp("data") / "table.parquet", some, world.encoder)


@pytest.fixture(scope="module")
def simulated(table, tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "out"
    return out, answer(
        "simulate", "--data", table, "--router", "kmeans,mlp", "--clients", 4, "--rounds", 2, "--out", out
    )


def test_simulate_prints_what_the_design_fixes(simulated, table):
    _, document = simulated
    assert document["data"] == table.name
    assert (document["encoder"], document["seed"], document["queries"]) == ("static", 0, 400)
    assert document["privacy"] == "default"
    # Four of the twelve models have enough rows at one client only, so a real federation would not learn them, either.
    assert len(document["models"]) == 8
    (left_out,) = (warning for warning in document["warnings"] if warning.startswith("left out, because"))
    assert left_out.count(",") == 4
    assert [client["name"] for client in document["clients"]] == ["client-1", "client-2", "client-3", "client-4"]
    assert 300 < sum(client["train"] + client["test"] for client in document["clients"]) < 400
    for way in ("federated", "local", "centralized"):
        for family in ("kmeans", "mlp"):
            for where in ("global", "own"):
                assert set(document["results"][way][family][where]) == MEASURES
    assert set(document["baselines"]) == {"oracle", "mix", "best_single", "query_blind", "random", "cheapest"}
    assert all(set(areas) == MEASURES for areas in document["baselines"].values())
    assert document["verdict"] == document["verdicts"][Path(document["bundle"]).name]["sentence"]
    assert document["seconds"]
    assert Path(document["bundle"]).is_dir()


def test_a_setting_of_a_family_can_be_changed(table, tmp_path):
    where = ("--data", table, "--clients", 4, "--privacy", "open")
    changed = answer(
        "simulate", *where, "--router", "kmeans", "--set", "kmeans.k_global=40", "--out", tmp_path / "kmeans"
    )
    assert changed["settings"]["federated"]["kmeans"]["k_global"] == 40
    assert changed["settings"]["centralized"]["kmeans"]["k_global"] == 40
    assert "--set kmeans.k_global=40" in (tmp_path / "kmeans" / "report.html").read_text()


@pytest.mark.parametrize("privacy", ["exact", pytest.param("open", marks=pytest.mark.slow)])
def test_another_privacy_is_recorded_and_a_personal_router_needs_a_release(privacy, table, tmp_path):
    document = answer("simulate", "--data", table, "--clients", 3, "--privacy", privacy, "--out", tmp_path / "out")
    assert document["privacy"] == privacy
    assert list(document["results"]["personal"]) == ([] if privacy == "open" else ["bayes"])


def test_a_privacy_that_does_not_exist_is_refused_before_any_work(table, tmp_path):
    failed = run("simulate", "--data", table, "--privacy", "secret", "--out", tmp_path / "out")
    assert failed.returncode == 2
    assert "--privacy: expected default, exact, open, got 'secret'" in failed.stderr
    assert not (tmp_path / "out").exists()


def test_a_router_on_embeddings_of_the_file_says_what_it_takes_to_read_text(table, tmp_path):
    some = pyarrow.parquet.read_table(table)
    named = ["all_mpnet_base_v2_embedding" if name == "static_embedding" else name for name in some.column_names]
    pyarrow.parquet.write_table(some.rename_columns(named), tmp_path / "table.parquet")
    options = ("--clients", 3, "--out", tmp_path / "out")
    shown = run("simulate", "--data", tmp_path / "table.parquet", *options).stdout
    assert "needs the encoder all-mpnet-base-v2" in shown
    assert "--encoder static" in shown


def test_the_settings_of_every_way_are_reported(simulated):
    _, document = simulated
    settings = document["settings"]
    assert settings["federated"]["mlp"]["rounds"] == 2
    local = settings["local"]
    assert set(np.ravel(local["mlp"]["local_epochs"])) <= {1, 2}
    assert settings["federated"]["kmeans"]["k_local"] == 15
    assert local["kmeans"]["k_global"] == 0  # chosen by validation
    assert 1 <= settings["centralized"]["mlp"]["local_epochs"] <= 2


def test_simulate_writes_figures_and_a_page_that_needs_nothing_else(simulated):
    out, _ = simulated
    for name in ("frontiers.png", "frontiers.svg"):
        assert (out / name).stat().st_size > 5000
    page = (out / "report.html").read_text()
    assert page.count("<svg") == 1
    for outside in ("<script", "<img", "<link", "@import", "src="):
        assert outside not in page


def test_the_same_seed_writes_the_same_bundle(simulated, table, tmp_path):
    _, document = simulated
    out = tmp_path / "again"
    options = ("--data", table, "--router", "mlp", "--clients", 4, "--rounds", 2, "--out", out)
    again = answer_process("simulate", *options)
    for name in ("bundle.json", "router.safetensors"):
        first, second = (Path(one["bundles"]["mlp"]) / name for one in (document, again))
        assert first.read_bytes() == second.read_bytes()
    for way, families in again["results"].items():
        assert families.get("mlp") == document["results"][way].get("mlp")


@pytest.mark.slow
def test_the_warning_of_a_simulated_world_goes_with_the_demo(tmp_path):
    done = run_process("demo", "--out", tmp_path / "demo", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["simulated"] is True
    assert "Simulated" in done.stderr
    assert "Simulated" in (tmp_path / "demo" / "report.html").read_text()
    assert json.loads((Path(document["bundle"]) / "bundle.json").read_text())["simulated"] is True
    # What the newcomer is to see: together is far better than alone.
    federated, alone = (document["results"][way]["bayes"]["global"]["aiq"] for way in ("federated", "local"))
    assert federated > alone + 0.03
    assert federated > document["baselines"]["query_blind"]["aiq"]
    assert document["left"]["numbers"] > 4_000
    assert f"{document['left']['numbers']:,} numbers" in done.stderr
    # And scores change what the gateway does.
    assert document["service"]["accuracy"]["after"] < document["service"]["accuracy"]["before"] - 0.01
    routed = answer("route", document["bundle"], "Write a Python function that sorts a list.", "--tradeoff", 10)
    assert routed["model"] == routed["ranking"][0]["model"]


def test_evaluate_judges_a_saved_router_by_routers_that_have_not_seen_the_fold(simulated, table, tmp_path):
    _, document = simulated
    found = answer("evaluate", document["bundle"], table, "--out", tmp_path / "frontier.svg")
    assert found["trained"]  # three quarters of this very file
    assert any("learned from this log" in warning for warning in found["warnings"])
    assert found["areas"] is None
    assert "of the accuracy of" in found["verdict"]
    assert Path(found["figure"]).stat().st_size > 5000
    shown = run_process("evaluate", document["bundle"], table).stdout
    assert f"Verdict: {found['verdict']}\n" in shown


def test_on_a_full_table_that_a_router_has_not_seen_evaluate_measures_areas(simulated, table, tmp_path):
    _, document = simulated
    rows = pyarrow.parquet.read_table(table).slice(1)  # another file
    pyarrow.parquet.write_table(rows, tmp_path / "new.parquet")
    found = answer("evaluate", document["bundle"], tmp_path / "new.parquet")
    assert (found["trained"], found["judgement"]["propensities"]) == (False, "known")
    assert set(found["areas"]) == MEASURES
    assert found["baselines"]["mix"]["cost_to_match"]["1.0"] == pytest.approx(1)


def test_evaluate_finds_the_tradeoff_for_a_target(simulated, table):
    _, document = simulated
    cost = answer("evaluate", document["bundle"], table, "--max-cost", 0.0005)["target"]
    assert cost["cost"] <= 0.0005 * 1.1  # the curve is smoothed before it is searched
    accuracy = answer("evaluate", document["bundle"], table, "--min-accuracy", 0.6)["target"]
    assert accuracy["accuracy"] >= 0.6 * 0.98
    low, high = (answer("evaluate", document["bundle"], table, "--quality", kept)["judgement"] for kept in (0.8, 1.0))
    assert low["tradeoff"] > high["tradeoff"]


def test_models_that_the_router_does_not_know_are_told_before_anything_is_encoded(simulated, tmp_path):
    _, document = simulated
    known = document["models"][0]
    rows = [f"What is {number} plus 1?,{model},1,0.001" for number in range(40) for model in (known.upper(), known)]
    (tmp_path / "log.csv").write_text("\n".join(["prompt,model,accuracy,cost", *rows]))
    found = run("evaluate", document["bundle"], tmp_path / "log.csv")
    told = f"{known.upper()} (the router calls it {known}: use that name)"
    assert f"their rows are left out: {told}" in found.stdout.replace("\n", " ")
    assert "different queries, 50 the least" in found.stdout
    (tmp_path / "other.csv").write_text("\n".join(["prompt,model,accuracy,cost", *rows[::2]]))
    refused = run("evaluate", document["bundle"], tmp_path / "other.csv")
    assert (refused.returncode, "none of its models is in" in refused.stderr, told in refused.stderr) == (2, True, True)


def test_the_report_opens_with_the_verdict(simulated):
    out, document = simulated
    page = (out / "report.html").read_text()
    assert page.index(document["verdict"].partition(";")[0]) < page.index("<svg")


def test_route_ranks_every_model_by_the_rule(simulated):
    _, document = simulated
    for tradeoff in (0, 50, 1e7):
        routed = answer("route", document["bundles"]["mlp"], "What is 17 * 23?", "--tradeoff", tradeoff)
        ranking = routed["ranking"]
        assert {entry["model"] for entry in ranking} == set(document["models"])
        utilities = [entry["utility"] for entry in ranking if entry["utility"] is not None]
        assert utilities == sorted(utilities, reverse=True)
        for entry in ranking:
            if entry["utility"] is not None:
                assert entry["utility"] == pytest.approx(entry["accuracy"] - tradeoff * entry["cost"])


def test_bayes_is_the_default_and_a_run_is_repeated_with_its_noise(table, tmp_path):
    once, again = (
        answer("simulate", "--data", table, "--clients", 4, "--out", tmp_path / folder) for folder in ("once", "again")
    )
    assert list(once["results"]["federated"]) == ["bayes"]
    assert json.loads((Path(once["bundle"]) / "bundle.json").read_text())["family"] == "bayes"
    assert once["results"] == again["results"]
    assert set(once["results"]["personal"]["bayes"]) == {"own"}


def test_without_a_tradeoff_a_quality_decides(simulated):
    _, document = simulated
    low, high = (
        answer("route", document["bundles"]["kmeans"], "What is 17 * 23?", "--quality", quality)
        for quality in (0.5, 1.0)
    )
    assert low["tradeoff"] > high["tradeoff"]


def test_route_shows_a_table_to_a_person(simulated):
    _, document = simulated
    done = run("route", document["bundle"], "What is 17 * 23?", "--tradeoff", "10")
    assert done.returncode == 0
    assert all(model in done.stdout for model in document["models"])


BAD = [
    (["simulate", "--data", "nowhere.parquet"], "nowhere.parquet: no such file"),
    (
        ["simulate", "--data", "TABLE", "--router", "forest"],
        "--router: expected bayes, kmeans, mlp",
    ),
    (["simulate", "--data", "TABLE", "--model-alpha", "some"], "--model-alpha: expected a number or 'uniform'"),
    (
        ["simulate", "--data", "TABLE", "--router", "kmeans", "--set", "kmeans.k_globl=40"],
        "no setting 'k_globl'; kmeans has k_local, k_global, restarts, iterations\n",
    ),
    (
        ["simulate", "--data", "TABLE", "--router", "kmeans", "--set", "mlp.rounds=3"],
        "--set mlp.…: mlp is not used here; --router chose kmeans",
    ),
    (["simulate", "--data", "TABLE", "--router", "kmeans", "--set", "kmeans.k_global=-1"], "k_global: expected at"),
    (["simulate", "--data", "TABLE", "--alpha", "0"], "alpha: expected a number above 0"),
    (["simulate", "--data", "TABLE", "--rounds", "0"], "rounds: expected at least 1"),
    (["simulate", "--data", "TABLE", "--participation", "2"], "participation: expected a share"),
    (["simulate", "--data", "TABLE", "--encoder", "no-such-encoder"], "encoder 'no-such-encoder' could not be loaded"),
    (["evaluate", "nowhere", "TABLE"], "nowhere: not a bundle"),
    (["route", "BUNDLE", "hello", "--tradeoff=-1"], "tradeoff: expected a number of at least 0"),
    (["route", "BUNDLE", "hello", "--tradeoff", "nan"], "tradeoff: expected a number of at least 0"),
    (["route", "BUNDLE", " ", "--tradeoff", "1"], "text: expected a query"),
    (["evaluate", "BUNDLE", "TABLE", "--max-cost", "1", "--min-accuracy", "1"], "expected one target"),
    (["evaluate", "BUNDLE", "TABLE", "--max-cost", "1e-12"], "no λ keeps the mean cost within"),
    (["evaluate", "BUNDLE", "TABLE", "--quality", "95"], "--quality: expected a share above 0 and at most 1"),
    (["show", "nowhere"], "nowhere: no such file or folder"),
    (["personalize", "BUNDLE"], "personalize: removed; use fedrouter learn LOG --with BUNDLE --out DIR"),
    (["calibrate", "BUNDLE"], "calibrate: removed; use fedrouter evaluate BUNDLE LOG"),
    (["coverage", "--data", "TABLE"], "coverage: removed; use fedrouter show LOG"),
    (["model", "add"], "model: removed; use fedrouter learn LOG --with BUNDLE"),
    (["client", "join"], "client: removed; use fedrouter learn LOG --with BUNDLE"),
    (["data", "import"], "data import: removed; use fedrouter import TOOL FILE"),
]


@pytest.mark.parametrize(("arguments", "said"), BAD)
def test_bad_input_is_one_line_and_no_traceback(simulated, table, tmp_path, arguments, said):
    places = {"TABLE": str(table), "BUNDLE": simulated[1]["bundle"]}
    done = run(*(places.get(word, word) for word in arguments), cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out" / "simulate" / "report.html").exists()


def test_with_json_an_error_is_a_document_too(tmp_path):
    done = run_process("simulate", "--data", tmp_path / "nowhere.csv", "--out", tmp_path / "out", "--json")
    assert done.returncode == 2
    assert "no such file" in json.loads(done.stdout)["error"]


def test_a_folder_with_something_in_it_is_never_overwritten(simulated, table, tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.txt").write_text("years of work")
    done = run("demo", "--out", precious)
    assert done.returncode == 2
    assert "not a folder that fedrouter made" in done.stderr
    assert (precious / "thesis.txt").read_text() == "years of work"
    out, _ = simulated
    done = run("simulate", "--data", table, "--out", out)
    assert done.returncode == 2
    assert "not empty" in done.stderr
    assert (out / "report.html").exists()


def test_the_version_and_help_are_there():
    assert run_process("--version").stdout.strip().count(".") == 2
    help_text = run_process("--help").stdout
    assert run("route", "-h").stdout == run("route", "--help").stdout
    for command in ("demo", "learn", "evaluate", "route", "show", "import", "simulate"):
        assert command in help_text


def test_a_mistyped_command_is_corrected_once():
    assert run_process("simulat").stderr.count("Did you mean") == 1
    assert run_process("key", "creat").stderr.count("Did you mean") == 1


def test_a_shell_completes_commands_and_options():
    def completed(words: str) -> list[str]:
        asked = {"_FEDROUTER_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        command = [Path(sys.executable).with_name("fedrouter")]
        return subprocess.run(command, env=os.environ | asked, capture_output=True, text=True).stdout.split()

    assert completed("fedrouter eval") == ["evaluate"]
    assert completed("fedrouter learn --wi") == ["--with", "--without"]
    assert "create" in completed("fedrouter key ")
