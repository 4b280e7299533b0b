"""The config file: a good one is read, and everything wrong with a bad one is said at once, with its line."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fedrouter.gateway.config import RoutingConfig
from fedrouter.gateway.config_file import BadConfig, config_schema, read_config, resolved
from fedrouter.gateway.routing.decision import REASONS
from fedrouter.gateway.routing.request import RequestOptions

DOCUMENTED = {
    "default_model": "small",
    "baseline_model": "large",
    "quality": 0.95,
    "max_cost": 0.05,
    "session_budget": 1.0,
}
"""What the documented config sets apart from the defaults it shows."""
CIRCLE, DEEP = "server: &x {port: *x}", "a: " + "[" * 3000 + "]" * 3000
"""YAML that cannot be read to its end."""
GOOD = """\
store: sqlite:///log.db
routing:
  default_model: small
  baseline_model: large
  tradeoff: 1e3
  explore: {share: 0.2}
timing:
  retries: 3
judges:
  list:
    - kind: regex
      settings: {pattern: "^yes"}
model_list:
  - model_name: small
    params:
      api_base: http://localhost:11434/v1
    input_price: 0
    output_price: 0
    context: 8192
  - model_name: large
    params:
      model: gpt-large
      api_base: https://example.org/v1/
      api_key: os.environ/SOME_KEY
      api: [chat, responses]
      extra_body: {reasoning_effort: high}
    input_price: 2.5
    output_price: 10
    cached_input_price: 1.25
    abilities: [tools, json, vision]
"""


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("SOME_KEY", "s3cret")


def written(tmp_path, text):
    path = tmp_path / "gateway.yaml"
    path.write_text(text)
    return path


def problems(tmp_path, text):
    with pytest.raises(BadConfig) as caught:
        read_config(written(tmp_path, text))
    return {(problem.line, problem.field): problem.message for problem in caught.value.problems}


def test_a_good_config_is_read(tmp_path):
    config = read_config(written(tmp_path, GOOD))
    small, large = config.models
    assert (small.params.api_base, small.target, small.params.api_key, small.context) == (
        "http://localhost:11434/v1",
        "small",
        None,
        8192,
    )
    assert (large.params.api_base, large.target, large.params.api_key) == (
        "https://example.org/v1",
        "gpt-large",
        "s3cret",
    )
    assert (large.params.api, large.params.extra_body) == ({"chat", "responses"}, {"reasoning_effort": "high"})
    assert (large.cached_input_price, large.abilities) == (1.25, {"tools", "json", "vision"})
    assert (config.routing.tradeoff, config.routing.explore.share, config.timing.retries) == (1000, 0.2, 3)
    assert config.judges.list[0].settings == {"pattern": "^yes"}
    assert config.server.auth
    assert not config.keep_prompts


def test_a_config_sets_a_quality_or_a_tradeoff(tmp_path):
    with pytest.raises(BadConfig, match="line 3, routing: set quality or tradeoff, not both"):
        read_config(written(tmp_path, GOOD.replace("tradeoff: 1e3", "tradeoff: 1e3\n  quality: 0.9")))
    with pytest.raises(BadConfig, match=r"routing.quality: expected a number from 0 to 1, got 11"):
        read_config(written(tmp_path, GOOD.replace("tradeoff: 1e3", "quality: 11")))


def test_a_config_has_few_fields():
    assert len(dict(fields_of(config_schema()))) <= 50


def test_learning_is_on_and_off_with_one_word(tmp_path):
    assert read_config(written(tmp_path, GOOD)).learning.enabled
    assert not read_config(written(tmp_path, GOOD + "learning: off\n")).learning.enabled
    assert read_config(written(tmp_path, GOOD + "learning: {half_life: 30}\n")).learning.half_life == 30


def test_the_documented_config_is_a_good_one(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    text = (Path(__file__).parents[2] / "docs" / "reference" / "gateway.md").read_text()
    example = text.split("```yaml\n")[1].split("```")[0]
    assert read_config(written(tmp_path, example)).routing == RoutingConfig(**DOCUMENTED)


def test_a_secret_is_not_in_what_is_printed(tmp_path):
    assert "s3cret" not in repr(read_config(written(tmp_path, GOOD)))


def test_everything_wrong_is_said_at_once_with_its_line(tmp_path, monkeypatch):
    monkeypatch.delenv("SOME_KEY")
    bad = (
        GOOD.replace("retries: 3", "retrys: 3")
        .replace("    output_price: 10\n", "")
        .replace("tradeoff: 1e3", "tradeoff: -1")
    )
    bad = bad.replace("baseline_model: large", "baseline_model: huge").replace('"^yes"', '"(("')
    found = problems(tmp_path, bad)
    assert found == {
        (4, "routing.baseline_model"): "'huge' is not in model_list (small, large)",
        (5, "routing.tradeoff"): "expected a number of at least 0, got -1",
        (8, "timing.retrys"): "unknown field; did you mean 'retries'?",
        (12, "judges.list[0].settings"): "judge regex, setting 'pattern': expected a regular expression",
        (20, "model_list[1].output_price"): "is missing: a model without a price is refused; write 0 if it is free",
        (24, "model_list[1].params.api_key"): "the environment variable SOME_KEY is not set",
    }


def test_an_entry_that_is_wrong_is_one_problem_and_not_a_missing_model(tmp_path):
    alone = GOOD[: GOOD.index("  - model_name: large")].replace("baseline_model: large", "baseline_model: small")
    assert set(problems(tmp_path, alone.replace("input_price: 0", "input_price: -1"))) == {
        (17, "model_list[0].input_price")
    }
    unknown = problems(tmp_path, alone.replace("timing:", "timing:\n  zzz: 1"))
    assert unknown[8, "timing.zzz"].startswith("unknown field; expected one of answer, breaker_rest, ")


def test_a_secret_written_out_is_refused_and_not_repeated(tmp_path):
    found = problems(tmp_path, GOOD.replace("os.environ/SOME_KEY", "sk-very-secret"))
    assert list(found) == [(24, "model_list[1].params.api_key")]
    assert "sk-very-secret" not in str(found)


@pytest.mark.parametrize(
    ("old", "new", "line", "field"),
    [
        ("input_price: 2.5", "input_price: free", 27, "model_list[1].input_price"),
        ("model_name: large", "model_name: small", 20, "model_list[1].model_name"),
        ("model_name: large", "model_name: auto", 20, "model_list[1].model_name"),
        ("https://example.org/v1/", "ftp://example.org", 23, "model_list[1].params.api_base"),
        ("https://example.org/v1/", "https://user:pw@example.org", 23, "model_list[1].params.api_base"),
        ("[tools, json, vision]", "[tools, telepathy]", 30, "model_list[1].abilities"),
        ("context: 8192", "context: many", 19, "model_list[0].context"),
        ("routing:\n", "routing:\n  bundle: nowhere\n", 3, "routing.bundle"),
        ("routing:\n", "routing:\n  encoder: tensorflow\n", 3, "routing.encoder"),
        ("timing:\n  retries: 3", "timing: quick", 7, "timing"),
        ("  retries: 3", "  retries: 3\n  retries: 4", 9, "timing.retries"),
        ("model_list:", "models:", 14, "models"),
        ("model_name: large", "name: large", 20, "model_list[1].name"),
    ],
)
def test_each_mistake_is_named_by_line_and_field(tmp_path, old, new, line, field):
    assert (line, field) in problems(tmp_path, GOOD.replace(old, new))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "- 1\n",
        "a: [1\nb: 2\n",
        "\x00",
        "model_list: []",
        "model_list: 3",
        CIRCLE,
        DEEP,
    ],
)
def test_what_is_no_config_at_all_is_refused(tmp_path, text):
    assert problems(tmp_path, text)


def test_check_says_what_is_wrong_and_exits_2(tmp_path):
    path = written(tmp_path, GOOD.replace("    output_price: 10\n", ""))
    program = "from fedrouter.cli.main import main; main()"
    command = [sys.executable, "-c", program, "show", str(path), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    found = json.loads(done.stdout)
    assert not found["ok"]
    assert found["problems"][0]["field"] == "model_list[1].output_price"
    assert "line 20, model_list[1].output_price" in done.stderr
    path.write_text(GOOD)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, json.loads(done.stdout)["ok"]) == (0, True)


def fields_of(schema, prefix=""):
    """Every field of a section and of the sections in it, with its default."""
    for name, field in schema["properties"].items():
        inside, path = resolved(field), f"{prefix}{name}"
        entry = resolved(inside["items"]) if inside.get("type") == "array" else {}
        if name == "deployments":  # each has the fields of params
            yield f"{path}[]", None
        elif "properties" in inside:
            yield from fields_of(inside, f"{path}.")
        elif "properties" in entry:
            yield from fields_of(entry, f"{path}[].")
        else:
            yield path, field.get("default")


def test_every_field_option_and_reason_is_documented_with_its_default():
    page = (Path(__file__).parents[2] / "docs" / "reference" / "gateway.md").read_text()
    rows = {match[1]: match[0] for match in re.finditer(r"^\| `([\w.\[\]]+)` \|.*$", page, re.MULTILINE)}
    fields = dict(fields_of(config_schema()))
    assert fields.keys() | RequestOptions.model_fields.keys() | REASONS.keys() <= rows.keys()
    sections = {path.partition(".")[0] for path in fields if "." in path}
    assert {name for name in rows if name.partition(".")[0] in sections} <= fields.keys()
    for path, default in fields.items():
        if isinstance(default, bool | int | float | str):
            shown = json.dumps(default) if isinstance(default, bool) else f"{default}".removesuffix(".0")
            assert f"| `{shown}` |" in rows[path]


def test_limits_and_ports_that_no_machine_has_are_refused(tmp_path):
    found = problems(tmp_path, GOOD + "server: {port: 65536, body_limit_mb: 1e308}\n")
    assert {field for _, field in found} == {"server.port", "server.body_limit_mb"}


@pytest.mark.parametrize(
    ("aliases", "said"),
    [
        ("{gpt-4o: nobody}", "line 1, aliases: gpt-4o: 'nobody' is neither auto nor in model_list (m)"),
        ("{auto: m}", "line 1, aliases: 'auto' is reserved for the router"),
        ("[m]", "line 1, aliases: expected names with one value each"),
    ],
)
def test_aliases_lead_to_models(tmp_path, aliases, said):
    path = tmp_path / "gateway.yaml"
    models = "model_list: [{model_name: m, params: {api_base: http://h/v1}, input_price: 0, output_price: 0}]"
    path.write_text(f"aliases: {aliases}\n{models}\n")
    with pytest.raises(BadConfig, match=re.escape(said)):
        read_config(path)
    path.write_text(f'aliases: {{gpt-4o: auto, "gpt-*": m}}\n{models}\n')
    assert read_config(path).resolved("gpt-4") == "m"


def test_telemetry_without_its_packages_and_with_a_wrong_address_is_refused(tmp_path, monkeypatch):
    wrong = problems(tmp_path, GOOD + "\notlp_endpoint: localhost\n")
    assert "http(s)://HOST" in next(iter(wrong.values()))

    def not_found(name):
        raise ModuleNotFoundError(name)

    for found in (not_found, lambda name: None):
        monkeypatch.setattr("fedrouter.gateway.config.find_spec", found)
        missing = problems(tmp_path, GOOD + "\notlp_endpoint: 'http://localhost:4318'\n")
        assert "fedrouter[otel]" in next(iter(missing.values()))
