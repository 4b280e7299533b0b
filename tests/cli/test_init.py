"""`fedrouter init` as a newcomer runs it: flags or questions in, a config that the gateway accepts out."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from cli.command import answer, run
from fedrouter.bundle import load
from fedrouter.data.prices import price_table
from fedrouter.gateway.config_file import read_config
from fedrouter.gateway.demo import demo_bundle

OWN = ("--model", "llama3.2:3b=http://localhost:11434/v1", "--price", "llama3.2:3b=0/0")


def test_a_config_from_flags_is_valid_and_has_the_table_s_prices(tmp_path, monkeypatch):
    out, table = tmp_path / "gateway.yaml", price_table()
    flags = ("--model", "gpt-4o-mini", "--model", "openai/gpt-4o", *OWN, "--quality", "0.9", "--port", "9000")
    document = answer("init", *flags, "--out", out)
    assert document["models"] == ["gpt-4o-mini", "gpt-4o", "llama3.2:3b"]
    assert document["variables"] == ["OPENAI_API_KEY"]
    assert document["prices"]["date"] == table.date
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    config = read_config(out)
    for model in config.models[:2]:
        listed = table.models[model.name]
        assert (model.input_price, model.output_price) == (listed.price.input, listed.price.output)
        assert model.params.api_base == listed.provider.api_base
    assert (config.models[2].input_price, config.routing.quality, config.server.port) == (0, 0.9, 9000)
    assert "secret" not in out.read_text()
    assert table.date in out.read_text()


@pytest.mark.parametrize("name", list(price_table().models))
def test_every_model_of_the_table_makes_a_valid_config(name, tmp_path, monkeypatch):
    monkeypatch.setenv(price_table().models[name].provider.key, "secret")
    assert run("init", "--model", name, "--out", tmp_path / "g.yaml").returncode == 0
    assert read_config(tmp_path / "g.yaml").models[0].name == name


def test_a_price_of_the_user_replaces_the_table_s(tmp_path):
    out = tmp_path / "gateway.yaml"
    flags = ("--model", "gpt-4o", "--price", "gpt-4o=1.5/6", "--key", "gpt-4o=MY_KEY", *OWN)
    document = answer("init", *flags, "--out", out)
    entry = yaml.safe_load(out.read_text())["model_list"][0]
    assert (entry["input_price"], entry["output_price"]) == (1.5, 6)
    assert "cached_input_price" not in entry
    assert entry["params"]["api_key"] == "os.environ/MY_KEY"
    assert document["prices"] is None


def test_the_command_says_the_table_s_date_and_what_comes_next(tmp_path):
    shown = run("init", "--model", "gpt-4o", "--out", "gateway.yaml", cwd=tmp_path).stdout
    assert f"Prices of {price_table().date}" in shown
    assert "export OPENAI_API_KEY=" in shown
    assert "fedrouter show gateway.yaml" in shown
    assert "one model leaves nothing to choose" in shown
    listed = answer("init", "--list")
    assert (listed["date"], len(listed["models"])) == (price_table().date, len(price_table().models))


def test_the_next_steps_can_be_pasted(tmp_path):
    flags = ("--model", "gpt-4o", *OWN, "--key", "gpt-4o=A_KEY_THAT_IS_NOT_SET", "--out", "it's my gateway.yaml")
    shown = run("init", *flags, cwd=tmp_path).stdout.partition("Next\n")[2].splitlines()
    *steps, serve = (line.strip() for line in shown)
    assert serve.startswith("fedrouter serve --config")  # runs until it is stopped; the step before has checked it
    pasted = subprocess.run(
        ["bash", "-e"],
        input="\n".join(steps),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        timeout=120,
    )
    assert pasted.returncode == 0, pasted.stderr
    assert ": valid; 2 models" in pasted.stdout


def test_the_list_has_the_addresses_and_the_variables_of_keys():
    known = price_table().models["gpt-4o"].provider
    shown = run("init", "--list", COLUMNS="160").stdout
    assert known.api_base in shown
    assert known.key in shown
    entry = next(one for one in answer("init", "--list")["models"] if one["name"] == "gpt-4o")
    assert (entry["address"], entry["variable"]) == (known.api_base, known.key)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- 1", "expected a LiteLLM config"),
        ("model_list: 3", "model_list: expected LiteLLM's list"),
        ("model_list: [{model_name: a}]", "model_list[0]: expected model_name and litellm_params"),
        ("model_list: [{model_name: a, litellm_params: {model: bedrock/x}}]", "no model that can be called here"),
        ("model_list: [{model_name: a, litellm_params: {model: groq/x}}]", "add --price a=INPUT/OUTPUT"),
        (
            "model_list: [{model_name: a, litellm_params: {model: ollama/x, api_base: ftp://h, "
            "input_cost_per_token: 0, output_cost_per_token: 0}}]",
            "model_list[0], api_base: expected http(s)",
        ),
    ],
)
def test_what_is_wrong_with_a_litellm_config_is_one_line(tmp_path, text, said):
    (tmp_path / "litellm.yaml").write_text(text)
    done = run("init", "--from", "litellm", "litellm.yaml", "--out", "g.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert not (tmp_path / "g.yaml").exists()


def test_a_bundle_s_models_are_called_where_the_table_or_a_flag_says(tmp_path, monkeypatch):
    made = demo_bundle(tmp_path / "made")
    names = load(made).router.pool.names
    short = run("init", "--bundle", made, "--out", tmp_path / "g.yaml")
    assert short.returncode == 2
    assert all(f"--model {name}=http://HOST/v1" in short.stderr for name in names)
    flags = [word for name in names for word in ("--model", f"{name}=http://h/v1", "--price", f"{name}=1/2")]
    (tmp_path / "configs").mkdir()
    out = tmp_path / "configs" / "g.yaml"
    assert answer("init", "--bundle", made, *flags, "--out", out)["models"] == list(names)
    config = read_config(out)
    assert config.routing.bundle
    assert load(Path(config.routing.bundle)).router.pool.names == names
    for name, said in (
        ("x", "x: not in the pool"),
        (names[0].upper(), f"(the router calls it {names[0]}: use that name)"),
    ):
        refused = run("init", "--bundle", made, "--model", f"{name}=http://h", "--out", tmp_path / "h")
        assert (refused.returncode, f"--model {name}" in refused.stderr, said in refused.stderr) == (2, True, True)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ((), "expected --model NAME"),
        (("--model", "nobody"), "--model nobody: not in the table of prices"),
        (("--model", "a=http://h/v1"), "--model a: expected its price too"),
        (("--model", "a=ftp://h", "--price", "a=0/0"), "model 'a': expected http(s)://host"),
        (("--model", "auto=http://h/v1", "--price", "auto=0/0"), "'auto' is reserved"),
        (("--model", "gpt-4o", "--model", "openai/gpt-4o"), "--model gpt-4o: given twice"),
        (("--model", "gpt-4o", "--price", "gpt-4=1/2"), "no --model gpt-4"),
        (("--model", "gpt-4o", "--price", "gpt-4o=1"), "--price: expected MODEL=INPUT/OUTPUT"),
        (("--model", "gpt-4o", "--price", "gpt-4o=1/-2"), "--price: expected MODEL=INPUT/OUTPUT"),
        (("--model", "gpt-4o", "--key", "gpt-4o=sk-1"), "and not the key itself"),
        (("--model", "gpt-4o", "--quality", "95"), "--quality: expected a share above 0"),
    ],
)
def test_wrong_flags_are_one_line_and_nothing_is_written(tmp_path, flags, said):
    done = run("init", *flags, "--out", tmp_path / "g.yaml")
    assert done.returncode == 2
    assert said in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_config_is_never_overwritten(tmp_path):
    (tmp_path / "g.yaml").write_text("mine")
    assert "already exists" in run("init", "--model", "gpt-4o", "--out", tmp_path / "g.yaml").stderr
    assert (tmp_path / "g.yaml").read_text() == "mine"
