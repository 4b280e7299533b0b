"""The gateway as a Python object: route a prompt, get an answer, give feedback, without starting a server.

Two stand-ins for language models answer on localhost; any OpenAI-compatible address works the same way. The router is
learned from a small log of prompts (extras: `serve`, `learn`).

    python examples/gateway_in_process.py
"""

from __future__ import annotations

import json
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from fedrouter import FAMILIES, Client, GatewayClient, LocalFederation, read, save
from fedrouter.bundle import Provenance

CONFIG = """
store: sqlite:///{folder}/log.db
routing: {{default_model: small, baseline_model: large}}
model_list:
  - {{model_name: small, params: {{api_base: "{url}"}}, input_price: 0.1, output_price: 0.4}}
  - {{model_name: large, params: {{api_base: "{url}"}}, input_price: 5, output_price: 20}}
"""
EASY, HARD = "What is the capital of {}?", "Prove step by step that {} is irrational."
WORDS = ["France", "Peru", "Kenya", "Japan", "Chile", "Ghana", "Nepal", "Spain", "Egypt", "Cuba", "Iran", "Oman"]


class StandIn(BaseHTTPRequestHandler):
    """Answers every chat completion with the name of the model that was asked."""

    def do_POST(self) -> None:
        model = json.loads(self.rfile.read(int(self.headers["content-length"])))["model"]
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": f"({model} answers)"},
            "finish_reason": "stop",
        }
        usage = {"prompt_tokens": 12, "completion_tokens": 40, "total_tokens": 52}
        answer = json.dumps({"object": "chat.completion", "model": model, "choices": [choice], "usage": usage}).encode()
        self.wfile.write(b"HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n" + answer)


def learn(folder: Path) -> Path:
    """A bundle from a log in which the small model fails at hard prompts."""
    lines = ["prompt,model,accuracy,cost"]
    for word in WORDS:
        lines += [f"{EASY.format(word)},small,1,0.00002", f"{EASY.format(word)},large,1,0.001"]
        lines += [f"{HARD.format(word)},small,0,0.00002", f"{HARD.format(word)},large,1,0.001"]
    (folder / "log.csv").write_text("\n".join(lines))
    data, family = read(folder / "log.csv"), FAMILIES["kmeans"]
    rows, settings = data.evaluations, family.settings(k_local=4, k_global=4)
    router = family.learn(LocalFederation([Client("me", rows)]), rows.pool, settings)
    provenance = Provenance.of_run(data.name, data.digest, 0, {"me": len(rows)}, settings)
    return save(folder / "v1", router, data.encoder, provenance)


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), StandIn)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        url = f"http://127.0.0.1:{server.server_port}/v1"
        (folder / "gateway.yaml").write_text(CONFIG.format(folder=folder, url=url))
        with GatewayClient(learn(folder), folder / "gateway.yaml") as client:
            for prompt in (EASY.format("Mali"), HARD.format("the square root of 7")):
                messages = [{"role": "user", "content": prompt}]
                for model in client.route(messages, tradeoff=100).ranking:
                    print(f"{model.model}: accuracy {model.accuracy:.2f}, cost ${model.cost:.5f}")
                answer = client.chat.completions.create(messages=messages, extra_body={"fedrouter": {"tradeoff": 100}})
                print(f"{prompt} {answer.choices[0].message.content} because: {answer.fedrouter.reason}\n")
                client.feedback(answer.fedrouter.decision_id, 1.0)
    server.shutdown()


if __name__ == "__main__":
    main()
