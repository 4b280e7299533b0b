"""The snippets of docs/reference/integrations.md that need nothing but this project are run as they stand there."""

import os
import re
import subprocess
import sys

import pytest
import yaml

from conftest import PROJECT
from fedrouter.gateway.config_file import read_config
from gateway.running import config_for

DOCUMENT = (PROJECT / "docs" / "reference" / "integrations.md").read_text()
ADDRESS = "http://localhost:8080"


def blocks(heading, language) -> list[str]:
    section = re.search(rf"^## {re.escape(heading)}$(.*?)(?=^## |\Z)", DOCUMENT, re.DOTALL | re.MULTILINE)[1]
    return re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)


@pytest.fixture(scope="module")
def gateway(start, bundle, upstream, tmp_path_factory):
    return start(config_for(tmp_path_factory.mktemp("integrations"), bundle, upstream.url))


def run(command, gateway, folder) -> str:
    """A program as a reader would run it; the demo's address is replaced by the gateway's."""
    done = subprocess.run(
        [part.replace(ADDRESS, gateway.url) for part in command],
        env={**os.environ, "FEDROUTER_KEY": gateway.key},
        capture_output=True,
        text=True,
        timeout=60,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_snippets_for_openai_s_sdk_run(gateway, tmp_path):
    printed = run([sys.executable, "-c", "\n".join(blocks("OpenAI's SDK", "python"))], gateway, tmp_path)
    assert "Four." in printed
    assert re.search(r"^(atlas|cobalt)-\w+ \w+$", printed, re.MULTILINE)
    assert "completion_tokens=5" in printed
    whole, _, streamed = sorted(gateway.store.latest(3), key=lambda record: record.id)
    assert (whole.score, streamed.streamed) == (None, True)
    assert [record.score for record in gateway.store.rows(scored_only=True)] == [1.0]


def test_the_snippet_for_curl_runs(gateway, tmp_path):
    printed = run(["bash", "-euc", *blocks("curl", "sh")], gateway, tmp_path)
    assert "Four." in printed
    newest = gateway.store.latest(1)[0]
    assert (newest.score, newest.tradeoff) == (0.5, 50.0)


@pytest.mark.parametrize("heading", ["LiteLLM", "Ollama"])
def test_the_configs_are_fine(heading, tmp_path, monkeypatch):
    monkeypatch.setenv("LITELLM_KEY", "secret")
    document = yaml.safe_load(blocks(heading, "yaml")[0])
    name = document["model_list"][0]["model_name"]
    path = tmp_path / "gateway.yaml"
    path.write_text(yaml.safe_dump(document | {"routing": {"default_model": name, "baseline_model": name}}))
    assert read_config(path).models[0].params.api_base.endswith("/v1")
