"""What a reproduction leaves: every point, every claim whether it holds or not, a page that needs nothing else."""

import csv
import json
from dataclasses import replace

import pytest

from fedrouter.experiments.claims import HOLDS, REFUTED, UNDECIDED, UNTESTABLE, Claim
from fedrouter.experiments.experiment import Experiment, Measurement
from fedrouter.experiments.paper_protocols import ROUTERBENCH
from fedrouter.experiments.sheet import Line, Panel, Sheet
from fedrouter.experiments.table import Row, Table
from fedrouter.report.reproduction import Origin, write_claims, write_experiment

RUNS = [{"seed": 0, "area": 0.5}, {"seed": 1, "area": 0.7}]
CLAIMS = [
    Claim("good", "Routers <route>.", "Section One", "auc: 0.7 against 0.6", HOLDS),
    Claim("bad", "Pipes | and\nlines.", "Section & Two", "a|b \\ c", REFUTED),
    Claim("wide", "Clusters.", "Section Two", "within noise", UNDECIDED, 40),
    Claim("open", "Encoders.", "Section Three", "one encoder only", UNTESTABLE),
]
ORIGIN = Origin(
    "data.parquet",
    "encoder-v2",
    {"mlp": 2, "kmeans": 2},
    {
        "rounds": 20,
        "protocol": ROUTERBENCH.to_json(),
        "settings": {"families": {"mlp": {}, "kmeans": {}}, "changes": {}},
        "rows_per_cell": {"kmeans": 11.6},
        "data_digest": "sha256:abc",
        "versions": {"python": "3.11", "fedrouter": "0.1"},
    },
    "fedrouter reproduce all --data data.parquet",
)


def experiment(name="areas", claims=CLAIMS):
    return Experiment(
        name,
        "Areas of <routers>",
        "Section One",
        Measurement(name, lambda world, watch: {}),
        lambda runs: [Sheet(f"{name}-figure", "What <to> see.", [Panel("p", [Line("area", [0, 1], [0, 1], "one")])])],
        lambda runs: [
            {"seed": run["seed"], "area": run["area"]} | ({"client": 'a, "b"'} if run["seed"] else {}) for run in runs
        ],
        lambda runs: {"mean": 0.6},
        lambda runs: [
            Table(name, "Areas", [Row("a_b", {"auc": {"mean": 0.6, "deviation": 0.1, "by_seed": [0.5, 0.7]}})])
        ],
        lambda runs: claims,
    )


@pytest.fixture
def written(tmp_path):
    result = write_experiment(experiment(), RUNS, ORIGIN, tmp_path)
    return tmp_path, [result], *write_claims([result], ORIGIN, tmp_path)


def test_an_experiment_leaves_figures_points_and_a_summary(written):
    out, *_ = written
    assert sorted(path.name for path in (out / "areas").iterdir()) == [
        "areas-figure.png",
        "areas-figure.svg",
        "areas.csv",
        "areas.json",
    ]
    with (out / "areas" / "areas.csv").open(newline="") as stream:
        assert list(csv.DictReader(stream)) == [
            {"seed": "0", "area": "0.5", "client": ""},
            {"seed": "1", "area": "0.7", "client": 'a, "b"'},
        ]
    document = json.loads((out / "areas" / "areas.json").read_text())
    assert (document["seeds"], document["summary"], document["command"]) == ([0, 1], {"mean": 0.6}, ORIGIN.command)
    assert [claim["verdict"] for claim in document["claims"]] == [HOLDS, REFUTED, UNDECIDED, UNTESTABLE]


def test_the_table_of_claims_has_every_claim_in_whole_rows(written):
    text = written[2].read_text()
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) == len(CLAIMS)
    for row in rows:
        assert row.replace("\\|", "").count("|") == 6
    assert "Pipes \\| and lines." in rows[1]
    assert "a\\|b \\\\ c" in rows[1]
    assert "✗ refuted" in rows[1]
    assert "4 claims: 1 hold, 1 refuted, 1 undecided, 1 not testable here" in text
    assert "95% interval" in text
    assert ORIGIN.command in text


def test_the_page_holds_claims_first_then_figures_and_nothing_from_elsewhere(written):
    html = written[3].read_text()
    assert html.index("✗ refuted") < html.index("<svg")
    assert "Routers &lt;route&gt;." in html
    assert "<route>" not in html
    assert "What &lt;to&gt; see." in html
    for verdict in (HOLDS, REFUTED, UNDECIDED, UNTESTABLE):
        assert verdict in html
    for outside in ("<script", "<link", "@import", "src=", 'href="http'):
        assert outside not in html


def test_a_claim_about_k_means_says_how_many_rows_a_cell_has(tmp_path):
    claims = [Claim("own-kmeans", "", "", "auc", HOLDS), Claim("own-mlp", "", "", "auc", HOLDS)]
    kmeans, mlp = write_experiment(experiment(claims=claims), RUNS, ORIGIN, tmp_path).claims
    assert "11.6 training rows per cell (cluster, model), in the paper's RouterBench about 124" in kmeans.measured
    assert mlp.measured == "auc"


def test_tables_are_written_for_work_and_for_print(written):
    out, *_ = written
    with (out / "tables" / "areas.csv").open(newline="") as stream:
        (row,) = csv.DictReader(stream)
    assert (row["row"], row["column"], row["mean"], row["deviation"], row["seeds"]) == ("a_b", "auc", "0.6", "0.1", "2")
    tex = (out / "tables" / "areas.tex").read_text()
    assert r"a\_b & $0.600 \pm 0.100$ \\" in tex
    assert tex.count(r"\midrule") == 1


def test_two_experiments_may_not_make_the_same_claim(tmp_path):
    results = [write_experiment(experiment(name), RUNS, ORIGIN, tmp_path) for name in ("one", "two")]
    with pytest.raises(AssertionError, match="named twice"):
        write_claims(results, ORIGIN, tmp_path)


def test_one_seed_is_named_as_such(tmp_path):
    result = write_experiment(experiment(), RUNS[:1], ORIGIN, tmp_path)
    markdown, _ = write_claims([result], replace(ORIGIN, seeds={"mlp": 1, "kmeans": 2}), tmp_path)
    text = markdown.read_text()
    assert "1 seed for MLP, 2 seeds for K-Means; encoder-v2 embeddings, 20 rounds" in text
    assert "10 clients, Dirichlet(0.6) over tasks, Dirichlet(0.45) over models, 3 models withheld" in text
