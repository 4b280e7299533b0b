"""`fedrouter coverage` as a client runs it: real files, real encoding, nothing of a query in what comes out."""

import csv
import json
from dataclasses import asdict

import numpy as np
import pytest

from cli import command
from conftest import drawn_evaluations
from fedrouter.bundle import Provenance, save
from fedrouter.encoders import EncoderIdentity
from fedrouter.engines.local import LocalFederation
from fedrouter.federation.client import Client
from fedrouter.federation.families.registry import family
from fedrouter.federation.privacy.policy import OPEN

REGIONS = 6
CANARY = "zanzibar-umbrella-7351"


def run(*arguments, cwd=None):
    return command.run("coverage", *arguments, cwd=cwd)


def answer(*arguments):
    return command.answer("coverage", *arguments)


def write_log(path, log, width=None):
    """A log with embeddings and tasks, as JSON lines."""
    with path.open("w") as lines:
        for query, model, accuracy, cost in zip(log.query, log.model, log.accuracy, log.cost, strict=True):
            row = {
                "embedding": [float(value) for value in log.embeddings[query][:width]],
                "model": log.pool.names[model],
                "accuracy": float(accuracy),
                "cost": float(cost),
                "task": log.task[query],
            }
            lines.write(json.dumps(row) + "\n")
    return path


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    """A federation of three clients, its router in two families."""
    logs = {f"client-{index}": drawn_evaluations(200, 4, seed=index) for index in (1, 2, 3)}
    pool = logs["client-1"].pool
    folder = tmp_path_factory.mktemp("bundles")
    for name in ("kmeans", "query_blind"):
        settings = family(name).settings(**({"k_global": REGIONS} if name == "kmeans" else {}))
        federation = LocalFederation(Client(who, log, OPEN) for who, log in logs.items())
        router = family(name).learn(federation, pool, settings)
        entries = [{"name": who, "rows": len(log)} for who, log in logs.items()]
        provenance = Provenance("drawn", "sha256:none", 0, 1, entries, asdict(settings))
        save(folder / name, router, EncoderIdentity.of("drawn", logs["client-1"].embeddings), provenance)
    return folder


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """A client that knows two of the federation's four models."""
    return write_log(tmp_path_factory.mktemp("log") / "log.jsonl", drawn_evaluations(120, 2, seed=7))


def write_csv(path, embedded):
    """A CSV as a newcomer has it, every prompt with a word that must stay at home."""
    draw = np.random.default_rng(0)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["prompt", "model", "accuracy", "cost"] + ["embedding"] * embedded)
        for number in range(60):
            subject = ("integrals", "sonnets", "SQL joins")[number % 3]
            row = [f"Question {number} about {subject}, marked {CANARY}?", ("small[v1]", "large")[number % 2]]
            row += [draw.integers(0, 2), 0.001 * (1 + number % 2)]
            writer.writerow(row + [json.dumps(draw.normal(size=6).tolist())] * embedded)
    return path


@pytest.fixture(scope="module")
def csv_report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("csv")
    log = write_csv(folder / "own.csv", embedded=True)
    return folder, run("--data", log, "--out", folder / "out", cwd=folder)


def check_no_text(folder, done):
    written = b"".join(path.read_bytes() for path in sorted((folder / "out").iterdir()))
    assert len(written) > 10_000
    for word in (CANARY, "sonnets", "Question 7"):
        assert word not in done.stdout + done.stderr
        assert word.encode() not in written


@pytest.mark.slow
def test_one_command_on_a_csv_of_prompts_is_enough(tmp_path):
    """Nothing but prompt, model, accuracy, cost: the default encoder encodes."""
    done = run("--data", write_csv(tmp_path / "own.csv", embedded=False), "--out", tmp_path / "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "60 rows, 60 queries, 2 regions" in done.stdout
    document = json.loads((tmp_path / "out" / "coverage.json").read_text())
    assert document["encoder"] == "static"
    assert sum(cell["rows"] for cell in document["cells"]) == 60
    check_no_text(tmp_path, done)


def test_a_log_alone_gives_tables_a_page_a_figure_and_a_next_step(csv_report):
    folder, done = csv_report
    assert done.returncode == 0, done.stderr
    assert "small[v1]" in done.stdout  # a name, not markup
    for name in ("coverage.html", "coverage.json", "coverage.png", "coverage.svg"):
        assert (folder / "out" / name).stat().st_size > 1000
    document = json.loads((folder / "out" / "coverage.json").read_text())
    assert len(document["cells"]) == document["cells_total"] == 2 * 2
    assert [entry["partners"] for entry in document["partners"]] == [0, 1, 3, 10]
    assert "Assumed, not measured" in done.stdout
    assert f"fedrouter coverage --data {folder / 'own.csv'} --bundle BUNDLE" in done.stdout


def test_no_text_of_a_query_is_in_anything_that_comes_out(csv_report):
    check_no_text(*csv_report)


def test_the_page_needs_nothing_else(csv_report):
    page = (csv_report[0] / "out" / "coverage.html").read_text()
    assert page.count("<svg") == 1
    for outside in ("<script", "<img", "<link", "@import", "src="):
        assert outside not in page


def test_json_is_one_document_and_the_same_as_the_file(log, tmp_path):
    document = answer("--data", log, "--out", tmp_path)
    assert document == json.loads((tmp_path / "coverage.json").read_text())
    assert document["rows"] == document["queries"] == 120
    assert len(document["regions"]) == 4
    assert set(document["regions"][0]["tasks"]) <= {"task-0", "task-1", "task-2", "task-3"}
    assert document["empty"] + document["few"] + document["enough"] == pytest.approx(1)
    assert document["joining"] is None
    assert document["verdict"] == "none; it takes a bundle (--bundle)"


def test_with_a_bundle_the_federations_cells_stand_beside_ones_own(log, bundles, tmp_path):
    document = answer("--data", log, "--bundle", bundles / "kmeans", "--client", "newcomer", "--out", tmp_path)
    assert document["regions_from"] == "the bundle's centres"
    assert len(document["regions"]) == REGIONS
    assert document["never_asked"] == document["joining"]["models_learnt"] == ["model-2", "model-3"]
    assert np.sum(document["joining"]["federated_rows"]) == 600
    assert document["joining"]["after"]["empty"] < document["joining"]["before"]["empty"]
    assert document["took_part"] is False
    assert document["errors"]["rows"] == 120
    assert {entry["model"] for entry in document["errors"]["models"]} == {"model-0", "model-1"}
    assert document["partners"] is None
    assert document["verdict"].startswith("none; it takes a table")  # the log has one answer a query
    assert "flatters" not in (tmp_path / "coverage.html").read_text()


@pytest.mark.parametrize(
    ("named", "said"),
    [
        (["--client", "client-2"], "The bundle was trained on these rows too"),
        ([], "is not known (--client NAME checks)"),
    ],
)
def test_a_client_who_may_have_taken_part_is_warned_that_the_comparison_is_optimistic(
    log, bundles, tmp_path, named, said
):
    done = run("--data", log, "--bundle", bundles / "kmeans", *named, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
    assert said in (tmp_path / "coverage.html").read_text()
    assert "fedrouter personalize" in done.stdout


def test_a_router_without_regions_is_compared_by_its_errors_alone(log, bundles, tmp_path):
    document = answer("--data", log, "--bundle", bundles / "query_blind", "--out", tmp_path)
    assert document["regions_from"] == "clusters of your own queries"
    assert document["joining"] is None
    assert document["errors"]["family"] == "query_blind"
    assert "has no regions" in document["joining_told"][0]


def test_embeddings_of_another_width_leave_the_bundle_out_and_say_so(bundles, tmp_path):
    narrow = write_log(tmp_path / "narrow.jsonl", drawn_evaluations(60, 2, seed=7), width=5)
    document = answer("--data", narrow, "--bundle", bundles / "kmeans", "--out", tmp_path / "out")
    assert "width 5, the bundle expects drawn of width 8" in document["warnings"][0]
    assert document["bundle"] is None
    assert document["regions_from"] == "clusters of your own queries"


def test_a_log_of_models_the_federation_does_not_know_has_no_errors_to_compare(bundles, tmp_path):
    drawn = drawn_evaluations(60, 1, seed=7)
    strange = write_log(tmp_path / "strange.jsonl", drawn)
    strange.write_text(strange.read_text().replace("model-0", "house-model"))
    document = answer("--data", strange, "--bundle", bundles / "kmeans", "--out", tmp_path / "out")
    assert document["errors"] is None
    assert "no row of any of the bundle's models" in document["warnings"][0]
    assert document["joining_told"][-1] == "Models only you know: house-model."


BAD = [
    ("model,accuracy,cost\na,1,0.1\n", "neither embeddings nor a 'prompt' column"),
    (
        "embedding,model,accuracy,cost\n[1],a,1.5,0.1\n",
        "row 1, column 'accuracy': expected a number in [0, 1], got 1.5",
    ),
    ("embedding,model,accuracy,cost\n[1],a,1,0.1\n[2],a,yes,0.1\n", "row 2, column 'accuracy': expected a number"),
    ("embedding,model,accuracy,cost\n[1],a,1,-2\n", "row 1, column 'cost': expected US dollars"),
    ("embedding,model,accuracy,cost\n[1],a,1,0.1\n[2],,1,0.1\n", "row 2, column 'model': expected text"),
    ("embedding,model,accuracy,cost\n[1],a,1,0.1\nwords,a,1,0.1\n", "row 2, column 'embedding': expected a list"),
    ("embedding,model,accuracy,cost\n[1],a,1,0.1\n[2],a,1\n", "row 2: expected 4 columns, got 3"),
    ("prompt,model,score\nhello,a,1\n", "a log without the column 'accuracy' and 'cost'"),
]


@pytest.mark.parametrize(("text", "said"), BAD)
def test_a_bad_row_is_named_by_file_row_and_column(tmp_path, text, said):
    path = tmp_path / "log.csv"
    path.write_text(text)
    done = run("--data", path, "--out", tmp_path / "out")
    assert done.returncode == 2
    assert str(path) in done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_bad_number_of_regions_is_refused(log, tmp_path):
    done = run("--data", log, "--regions", 0, "--out", tmp_path / "out")
    assert done.returncode == 2
    assert "--regions: expected at least 1, got 0" in done.stderr
