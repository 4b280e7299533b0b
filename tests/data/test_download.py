"""Files fetched from a real server on this machine: whole, resumed, corrupt, cut short, absent, out of reach."""

import dataclasses
import hashlib
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from fedrouter.data.download import MIRROR, fetch
from fedrouter.data.published import BENCHMARKS, Published, benchmark
from fedrouter.errors import BadInput, FedrouterError

CONTENT = bytes(range(256)) * 20_000  # five million bytes: several pieces
SHA = hashlib.sha256(CONTENT).hexdigest()
PAGE = "https://nowhere.invalid"
BENCH = Published("bench", "A benchmark", PAGE, "none", "table.pkl", f"{PAGE}/table.pkl", SHA, len(CONTENT))


class Server(ThreadingHTTPServer):
    daemon_threads = True
    content = CONTENT
    ranges = True
    stop_after = None
    redirect = None

    def handle_error(self, request, client_address):
        pass  # a client that hangs up is part of the tests


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append((self.path, self.headers.get("Range")))
        if self.server.redirect:
            self.send_response(302)
            self.send_header("Location", self.server.redirect)
            self.end_headers()
            return
        if not self.path.endswith("/bench/table.pkl"):
            self.send_error(404)
            return
        start, body = 0, self.server.content
        if self.headers.get("Range") and self.server.ranges:
            start = int(self.headers["Range"].removeprefix("bytes=").rstrip("-"))
            if start >= len(body):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        self.wfile.write(body[start : self.server.stop_after])

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server(monkeypatch):
    with Server(("127.0.0.1", 0), Handler) as running:
        running.asked = []
        thread = threading.Thread(target=running.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        monkeypatch.setenv(MIRROR, f"http://127.0.0.1:{running.server_port}/mirror/")
        yield running
        running.shutdown()
        thread.join()


def test_a_file_comes_whole_and_is_told_of(server, tmp_path):
    seen = []
    result = fetch(BENCH, tmp_path / "new", watch=lambda *step: seen.append(step))
    assert result.path.read_bytes() == CONTENT
    assert (result.sha256, result.size, result.fetched) == (SHA, len(CONTENT), True)
    assert seen[-1] == ("table.pkl", len(CONTENT), len(CONTENT))
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["table.pkl"]
    assert server.asked == [("/mirror/bench/table.pkl", None)]


def test_a_file_that_is_there_and_right_is_not_fetched_again(server, tmp_path):
    (tmp_path / "table.pkl").write_bytes(CONTENT)
    assert not fetch(BENCH, tmp_path).fetched
    assert not server.asked


def test_a_file_that_is_there_and_wrong_is_named_and_left_alone(server, tmp_path):
    (tmp_path / "table.pkl").write_bytes(b"mine")
    with pytest.raises(FedrouterError, match=rf"table\.pkl exists, but its sha256 is [0-9a-f]{{64}} and not {SHA}"):
        fetch(BENCH, tmp_path)
    assert (tmp_path / "table.pkl").read_bytes() == b"mine"


def test_a_download_goes_on_where_it_was_cut_short(server, tmp_path):
    server.stop_after = 3_000_000
    with pytest.raises(FedrouterError, match=r"ended after 3,000,000 of 5,120,000 bytes.*the same command resumes it"):
        fetch(BENCH, tmp_path)
    assert not (tmp_path / "table.pkl").exists()
    server.stop_after = None
    assert fetch(BENCH, tmp_path).path.read_bytes() == CONTENT
    assert server.asked[-1][1] == "bytes=3000000-"
    assert [path.name for path in tmp_path.iterdir()] == ["table.pkl"]


def test_a_server_without_ranges_sends_all_of_it_again(server, tmp_path):
    server.ranges = False
    (tmp_path / "table.pkl.part").write_bytes(CONTENT[:1000])
    assert fetch(BENCH, tmp_path).path.read_bytes() == CONTENT


def test_a_finished_part_is_only_checked(server, tmp_path):
    (tmp_path / "table.pkl.part").write_bytes(CONTENT)
    assert fetch(BENCH, tmp_path).fetched
    assert not server.asked


@pytest.mark.parametrize("content", [CONTENT[:-1] + b"x", CONTENT + b"more", b"short"])
def test_a_wrong_file_is_refused_and_nothing_stays(server, tmp_path, content):
    server.content = content
    with pytest.raises(FedrouterError, match=rf"refused, its sha256 is [0-9a-f]{{64}} and not {SHA}"):
        fetch(BENCH, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_damaged_part_is_refused_and_the_next_try_starts_anew(server, tmp_path):
    (tmp_path / "table.pkl.part").write_bytes(b"rubbish")
    with pytest.raises(FedrouterError, match="refused"):
        fetch(BENCH, tmp_path)
    assert fetch(BENCH, tmp_path).path.read_bytes() == CONTENT


def test_what_the_server_does_not_have_is_said_with_what_to_do(server, tmp_path):
    missing = dataclasses.replace(BENCH, file="absent.pkl")
    with pytest.raises(FedrouterError) as caught:
        fetch(missing, tmp_path)
    said = str(caught.value)
    assert "the server answers 404 Not Found" in said
    assert f"copy it to {tmp_path / 'absent.pkl'}" in said
    assert not list(tmp_path.iterdir())


def test_out_of_reach_says_what_to_do_by_hand_and_doing_it_works(monkeypatch, tmp_path):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    monkeypatch.setenv(MIRROR, f"http://127.0.0.1:{port}")
    with pytest.raises(FedrouterError) as caught:
        fetch(BENCH, tmp_path)
    said = str(caught.value)
    for part in ("Connection refused", f"http://127.0.0.1:{port}/bench/table.pkl", str(tmp_path / "table.pkl"), SHA):
        assert part in said
    (tmp_path / "table.pkl").write_bytes(CONTENT)
    assert fetch(BENCH, tmp_path).path.read_bytes() == CONTENT


# Addresses


@pytest.mark.parametrize(
    "mirror", ["http://example.org", "ftp://example.org", "file:///etc", "http://127.0.0.1.example"]
)
def test_only_https_leaves_this_machine(monkeypatch, tmp_path, mirror):
    monkeypatch.setenv(MIRROR, mirror)
    with pytest.raises(BadInput, match="expected an https URL"):
        fetch(BENCH, tmp_path)


def test_a_redirect_may_not_leave_https_either(server, tmp_path):
    server.redirect = "http://example.org/table.pkl"
    with pytest.raises(BadInput, match=r"http://example\.org/table\.pkl: expected an https URL"):
        fetch(BENCH, tmp_path)
    server.redirect = None
    assert fetch(BENCH, tmp_path).path.read_bytes() == CONTENT


def test_every_published_address_is_https_and_every_checksum_is_one():
    assert set(BENCHMARKS) == {"routerbench", "routerbench-5shot"}
    for published in BENCHMARKS.values():
        assert published.license
        assert published.url.startswith("https://")
        assert len(bytes.fromhex(published.sha256)) == 32


def test_an_unknown_benchmark_is_named_with_the_known_ones():
    with pytest.raises(BadInput, match="no benchmark 'routerbnech': expected routerbench, "):
        benchmark("routerbnech")
