"""Schemathesis reads /openapi.json and tries every operation, with what it allows and with what it does not."""

import subprocess
import sys
from pathlib import Path

import pytest

from fedrouter.gateway.app import ENDPOINTS
from fedrouter.gateway.routes.endpoint import document
from gateway.process import GatewayProcess, settings
from gateway.tolerant import TolerantUpstream

EXAMPLES = 100
"""Tries of each operation, each way."""


@pytest.fixture
def tolerant():
    upstream = TolerantUpstream()
    yield upstream
    upstream.stop()


@pytest.fixture
def gateway(tmp_path, bundle, tolerant):
    config = settings(tmp_path, bundle, tolerant.url)
    config["server"]["body_limit_mb"] = 1
    for model in config["model_list"][::2]:
        model["abilities"] = ["tools", "json", "vision"]
    process = GatewayProcess(tmp_path, config)
    process.start()
    yield process
    process.stop()


@pytest.mark.slow
def test_the_surface_is_what_its_own_document_says(gateway, tolerant, tmp_path):
    pytest.importorskip("schemathesis")
    command = [
        *(str(Path(sys.executable).with_name("schemathesis")), "run", f"{gateway.url}/openapi.json"),
        *("--header", f"Authorization: Bearer {gateway.key}", "--seed", "6", "--max-examples", str(EXAMPLES)),
        # Valid options that exclude every model (too low a price, an unknown name) are rejected; no schema can say so.
        *("--checks", "all", "--exclude-checks", "positive_data_acceptance"),
        *("--generation-database", "none", "--suppress-health-check", "all", "--request-timeout", "30", "--no-color"),
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    operations = sum(map(len, document(ENDPOINTS)["paths"].values()))
    assert f"{operations} selected / {operations} total" in done.stdout
    print(f"\nschemathesis:{done.stdout.partition('Test cases:')[2].partition('Seed')[0]}")
    assert gateway.alive()
    assert not tolerant.wrong, tolerant.wrong[:5]
    assert " ERROR " not in gateway.printed()
