"""What a reproduction leaves: every point, every claim whether it holds or not, a page that needs nothing else."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import pytest

from fedrouter.experiments.claims import FAILS, HOLDS, UNTESTABLE, Claim
from fedrouter.experiments.experiment import Experiment, Measurement
from fedrouter.experiments.sheet import Line, Panel, Sheet
from fedrouter.report.reproduction import Origin, write_claims, write_experiment

RUNS = [{"seed": 0, "area": 0.5}, {"seed": 1, "area": 0.7}]
CLAIMS = [
    Claim("good", "Routers <route>.", "Section One", "auc: 0.7 against 0.6", HOLDS),
    Claim("bad", "Pipes | and\nlines.", "Section & Two", "a|b \\ c", FAILS),
    Claim("open", "Encoders.", "Section Three", "one encoder only", UNTESTABLE),
]
ORIGIN = Origin(
    "data.parquet",
    "encoder-v2",
    2,
    {
        "rounds": 20,
        "settings": {"families": {"mlp": {}, "kmeans": {}}},
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
    assert [claim["verdict"] for claim in document["claims"]] == [HOLDS, FAILS, UNTESTABLE]


def test_the_table_of_claims_has_every_claim_in_whole_rows(written):
    text = written[2].read_text()
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) == len(CLAIMS)
    for row in rows:
        assert row.replace("\\|", "").count("|") == 6
    assert "Pipes \\| and lines." in rows[1]
    assert "a\\|b \\\\ c" in rows[1]
    assert "✗ does not" in rows[1]
    assert "3 claims: 1 hold, 1 do not, 1 not testable here" in text
    assert "95% interval" in text
    assert ORIGIN.command in text


def test_the_page_holds_claims_first_then_figures_and_nothing_from_elsewhere(written):
    html = written[3].read_text()
    assert html.index("✗ does not") < html.index("<svg")
    assert "Routers &lt;route&gt;." in html
    assert "<route>" not in html
    assert "What &lt;to&gt; see." in html
    for verdict in (HOLDS, FAILS, UNTESTABLE):
        assert verdict in html
    for outside in ("<script", "<link", "@import", "src=", 'href="http'):
        assert outside not in html


def test_two_experiments_may_not_make_the_same_claim(tmp_path):
    results = [write_experiment(experiment(name), RUNS, ORIGIN, tmp_path) for name in ("one", "two")]
    with pytest.raises(AssertionError, match="named twice"):
        write_claims(results, ORIGIN, tmp_path)


def test_one_seed_is_named_as_such(tmp_path):
    result = write_experiment(experiment(), RUNS[:1], ORIGIN, tmp_path)
    markdown, _ = write_claims([result], replace(ORIGIN, seeds=1), tmp_path)
    assert "one seed, encoder-v2 embeddings, 20 rounds" in markdown.read_text()
