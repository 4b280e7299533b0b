"""The shipped proxy files let the fleet's paths in and nothing else, over TLS with the federation's certificate."""

import http.client
import os
import re
import shutil
import ssl
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

pytest.importorskip("cryptography")

from fedrouter.deployment.address import free_port
from fedrouter.deployment.directories import create_coordinator
from fedrouter.encoders import EncoderIdentity

DEPLOY = Path(__file__).parents[2] / "deploy"
SETTINGS = {"epsilon": 8.0, "delta": 1e-6, "days": 7}
FLEET = (
    "activate-node",
    "deactivate-node",
    "send-node-heartbeat",
    "pull-messages",
    "push-messages",
    "get-run",
    "get-fab",
    "push-object",
    "pull-object",
    "confirm-message-received",
)
REFUSED = (
    *(("POST", f"/v1/control/{verb}") for verb in ("start-run", "list-nodes", "register-node", "stop-run")),
    *(("POST", f"/v1/runtime/{verb}") for verb in ("push-messages", "acquire-task", "push-task-output")),
    ("POST", "/v1/fleet/register-node"),
    ("POST", "/v1/fleet/unregister-node"),
    ("POST", "/v1/fleet/get-run/../../control/start-run"),
    ("POST", "/v1/fleet/%2e%2e/control/start-run"),
    ("POST", "/v1/fleet//get-run/x"),
    ("POST", "//v1/control/start-run"),
    ("POST", "/v1/fleet/get-runx"),
    ("GET", "/v1/fleet/get-run"),
    ("PUT", "/v1/fleet/get-run"),
    ("GET", "/health"),
    ("GET", "/docs"),
    ("GET", "/openapi.json"),
    ("GET", "/"),
)


def nginx(folder, text):
    binary = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
    if binary is None:
        pytest.skip("nginx is not installed")
    text = text.replace("events {}", f"events {{}}\npid {folder}/nginx.pid;\nerror_log {folder}/error.log;")
    temporary = "".join(
        f"{name}_temp_path {folder}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    text = text.replace("http {", f"http {{\naccess_log off;\n{temporary}", 1)
    (folder / "nginx.conf").write_text(text)
    user = ["-g", "user root;"] if os.geteuid() == 0 else []  # the test's folders are of this user
    return [binary, "-c", str(folder / "nginx.conf"), "-p", str(folder), "-g", " ".join([*user[1:], "daemon off;"])]


def caddy(folder, text):
    binary = shutil.which("caddy")
    if binary is None:
        pytest.skip("caddy is not installed")
    (folder / "Caddyfile").write_text(text)
    return [binary, "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"]


PROXIES = {"nginx.conf": nginx, "Caddyfile": caddy}


class Upstream(BaseHTTPRequestHandler):
    """Answers everything, so that what is refused was refused by the proxy."""

    def _answer(self):
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.server.asked.append(self.path)
        self.send_response(200)
        self.send_header("content-length", "8")
        self.end_headers()
        self.wfile.write(b"upstream")

    do_GET = do_POST = do_PUT = _answer

    def log_message(self, *_):
        pass


@pytest.fixture
def coordinator(tmp_path):
    return create_coordinator(
        tmp_path / "state", ["localhost"], free_port(), free_port(), EncoderIdentity("static", 275, True), SETTINGS
    )


@pytest.fixture(params=sorted(PROXIES))
def proxy(request, coordinator, tmp_path):
    """The port of a proxy as it is shipped, but for the ports and the folder."""
    public, inner = int(coordinator.config["port"]), coordinator.port
    text = (DEPLOY / request.param).read_text()
    text = text.replace("/var/lib/fedrouter-coordinator", str(coordinator.path))
    text = text.replace("listen 9092", f"listen 127.0.0.1:{public}").replace(":9092 {", f":{public} {{")
    text = text.replace("127.0.0.1:9093", f"127.0.0.1:{inner}")
    command = PROXIES[request.param](tmp_path, text)
    environment = {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    with (tmp_path / "output").open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment, cwd=tmp_path)
    try:
        end = time.monotonic() + 60
        while True:
            try:
                asked(coordinator, public, "GET", "/")
                break
            except OSError:
                assert time.monotonic() < end, (tmp_path / "output").read_text()
                assert process.poll() is None, (tmp_path / "output").read_text()
                time.sleep(0.1)
        yield public
    finally:
        process.terminate()
        process.wait(30)


def asked(coordinator, port, method, path):
    context = ssl.create_default_context(cafile=str(coordinator.authority))
    connection = http.client.HTTPSConnection("localhost", port, context=context, timeout=60)
    try:
        connection.request(method, path, body=b"x" if method != "GET" else None)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_the_proxy_passes_the_fleets_paths_and_refuses_all_others(proxy, coordinator):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(coordinator.path / "server.pem", coordinator.path / "server.key")
    upstream = ThreadingHTTPServer(("127.0.0.1", coordinator.port), Upstream)
    upstream.asked = []
    upstream.socket = context.wrap_socket(upstream.socket, server_side=True)
    thread = Thread(target=upstream.serve_forever)
    thread.start()
    try:
        for name in FLEET:
            assert asked(coordinator, proxy, "POST", f"/v1/fleet/{name}") == (200, b"upstream"), name
        passed = len(upstream.asked)
        assert passed == len(FLEET)
        for method, path in REFUSED:
            status, content = asked(coordinator, proxy, method, path)
            assert status in (400, 403, 404, 405), (method, path, status)
            assert content != b"upstream"
        assert len(upstream.asked) == passed
    finally:
        upstream.shutdown()
        thread.join()
        upstream.server_close()


def test_both_files_let_the_same_paths_in():
    for name in PROXIES:
        (listed,) = re.findall(r"\^/v1/fleet/\(([a-z|-]+)\)\$", (DEPLOY / name).read_text())
        assert listed.split("|") == list(FLEET)


@pytest.mark.slow
def test_a_member_learns_through_the_proxy_and_the_control_paths_are_refused(proxy, coordinator, tmp_path):
    pytest.importorskip("flwr")
    from deployment.real_federation import RealFederation, write_logs

    write_logs(tmp_path)
    with RealFederation(tmp_path, directory=coordinator.path) as federation:
        federation.form()  # its members connect to the public port
        last, _ = federation.epoch()
        assert (last["event"], len(last["survivors"])) == ("done", 3)
        flower = str(Path(sys.executable).with_name("flwr"))
        config = coordinator.path / "flower" / "config.toml"
        config.write_text(config.read_text().replace(f":{coordinator.port}", f":{proxy}"))
        for words in (["supernode", "list"], ["list"], ["run", str(coordinator.path / "app")]):
            done = subprocess.run(
                [flower, *words, "coordinator", "--format=json"],
                env={**os.environ, "FLWR_HOME": str(config.parent)},
                capture_output=True,
                text=True,
            )
            assert '"success": true' not in done.stdout, words
