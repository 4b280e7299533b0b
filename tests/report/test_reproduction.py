"""What a reproduction leaves: every claim whether it holds or not, a page that needs nothing else."""

import json
from dataclasses import replace

import pytest

from fedrouter.experiments.claims import HOLDS, REFUTED, SIMULATED, UNDECIDED, UNTESTABLE, Claim
from fedrouter.experiments.experiment import Experiment, Measurement
from fedrouter.experiments.paper_protocols import ROUTERBENCH
from fedrouter.experiments.sheet import Line, Panel, Sheet
from fedrouter.report.reproduction import Origin, write_claims, write_experiment

RUNS = [{"seed": 0, "area": 0.5}, {"seed": 1, "area": 0.7}]
CLAIMS = [
    Claim("good", "Routers <route>.", "Section One", "auc: 0.7 against 0.6", HOLDS),
    Claim("bad", "Pipes | and\nlines.", "Section & Two", "a|b \\ c", REFUTED),
    Claim("wide", "Clusters.", "Section Two", "within noise", UNDECIDED),
    Claim("open", "Encoders.", "Section Three", "one encoder only", UNTESTABLE),
]
ORIGIN = Origin(
    "data.parquet",
    "encoder-v2",
    {"mlp": 2, "kmeans": 2},
    {
        "rounds": 20,
        "protocol": ROUTERBENCH.to_json(),
        "settings": {"mlp": {"rounds": 20}, "kmeans": {"k_global": 0}},
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
        Measurement(name, lambda world: {}),
        lambda runs: [Sheet(f"{name}-figure", "What <to> see.", [Panel("p", [Line("area", [0, 1], [0, 1], "one")])])],
        lambda runs: {"mean": 0.6},
        lambda runs: claims,
    )


@pytest.fixture
def written(tmp_path):
    result = write_experiment(experiment(), RUNS, ORIGIN, tmp_path)
    return tmp_path, write_claims([result], ORIGIN, tmp_path).read_text()


def test_an_experiment_leaves_figures_and_a_summary(written):
    out, _ = written
    assert sorted(path.name for path in (out / "areas").iterdir()) == [
        "areas-figure.png",
        "areas-figure.svg",
        "areas.json",
    ]
    document = json.loads((out / "areas" / "areas.json").read_text())
    assert (document["seeds"], document["summary"], document["command"]) == ([0, 1], {"mean": 0.6}, ORIGIN.command)
    assert [claim["verdict"] for claim in document["claims"]] == [HOLDS, REFUTED, UNDECIDED, UNTESTABLE]


def test_the_page_has_every_claim_with_its_verdict_the_rules_and_the_command(written):
    html = written[1]
    assert html.count("<code>") == len(CLAIMS)
    assert "Pipes | and\nlines." in html
    assert "4 claims: 1 hold, 1 refuted, 1 undecided, 1 not testable here" in html
    assert "95% interval" in html
    assert ORIGIN.command in html


def test_the_page_holds_claims_first_then_figures_and_nothing_from_elsewhere(written):
    html = written[1]
    assert html.index("✗ refuted") < html.index("<svg")
    assert "Routers &lt;route&gt;." in html
    assert "<route>" not in html
    assert "What &lt;to&gt; see." in html
    for verdict in (HOLDS, REFUTED, UNDECIDED, UNTESTABLE):
        assert verdict in html
    for outside in ("<script", "<link", "@import", "src=", 'href="http'):
        assert outside not in html


def test_claims_that_say_nothing_about_this_data_are_marked_and_not_counted(tmp_path):
    claims = [*CLAIMS, replace(CLAIMS[0], name="sure", apart=SIMULATED)]
    result = write_experiment(experiment(claims=claims), RUNS, ORIGIN, tmp_path)
    text = write_claims([result], ORIGIN, tmp_path).read_text()
    assert "4 claims: 1 hold, 1 refuted, 1 undecided, 1 not testable here" in text
    assert "✓ holds</span> simulated population" in text


def test_settings_are_a_table(written):
    html = written[1]
    for name, value in (("K-Means, k_global", "0"), ("seeds, MLP", "2"), ("MLP, rounds", "20")):
        assert f"<td>{name}</td><td>{value}</td>" in html
    assert html.count('<div class="wide">') == html.count("<table") == 2


def test_two_experiments_may_not_make_the_same_claim(tmp_path):
    results = [write_experiment(experiment(name), RUNS, ORIGIN, tmp_path) for name in ("one", "two")]
    with pytest.raises(AssertionError, match="named twice"):
        write_claims(results, ORIGIN, tmp_path)
