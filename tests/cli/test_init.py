"""`fedrouter init` as a newcomer runs it: flags or questions in, a config that the gateway accepts out."""

import io
import os
import pty
import subprocess
import sys

import pytest
import yaml

from cli.command import answer, run
from fedrouter.data.prices import price_table
from fedrouter.gateway.config_file import read_config

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
    assert "fedrouter serve --config gateway.yaml --check" in shown
    assert "one model leaves nothing to choose" in shown
    listed = answer("init", "--list")
    assert (listed["date"], len(listed["models"])) == (price_table().date, len(price_table().models))


def test_the_list_has_the_addresses_and_the_variables_of_keys():
    known = price_table().models["gpt-4o"].provider
    shown = run("init", "--list", COLUMNS="160").stdout
    assert known.api_base in shown
    assert known.key in shown
    entry = next(one for one in answer("init", "--list")["models"] if one["name"] == "gpt-4o")
    assert (entry["address"], entry["variable"]) == (known.api_base, known.key)


def test_questions_lead_to_the_same_config(tmp_path):
    ours, theirs = pty.openpty()  # it asks only on a terminal
    os.write(ours, b"gpt-5-mini, house model\n\nHOUSE_KEY\n0.2\n0.4\n0.9\n")
    program = "from fedrouter.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "init", "--out", "g.yaml"],
        stdin=theirs,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=60,
    )
    os.close(ours)
    os.close(theirs)
    assert done.returncode == 0, done.stderr
    document = yaml.safe_load((tmp_path / "g.yaml").read_text())
    known, own = document["model_list"]
    assert (known["model_name"], document["routing"]["quality"]) == ("gpt-5-mini", 0.9)
    assert (own["model_name"], own["input_price"], own["output_price"]) == ("house model", 0.2, 0.4)
    assert own["params"] == {"api_base": "http://localhost:11434/v1", "api_key": "os.environ/HOUSE_KEY"}


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
        (("--model", "gpt-4o", "--quality", "95"), "--quality: expected a number from 0 to 1"),
    ],
)
def test_wrong_flags_are_one_line_and_nothing_is_written(tmp_path, monkeypatch, flags, said):
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    done = run("init", *flags, "--out", tmp_path / "g.yaml")
    assert done.returncode == 2
    assert said in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_config_is_never_overwritten(tmp_path):
    (tmp_path / "g.yaml").write_text("mine")
    assert "already exists" in run("init", "--model", "gpt-4o", "--out", tmp_path / "g.yaml").stderr
    assert (tmp_path / "g.yaml").read_text() == "mine"
