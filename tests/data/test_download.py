"""Files fetched from a real server on this machine: whole, resumed, corrupt, cut short, absent, out of reach."""

import hashlib
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from fedrouter.data.download import MIRROR, fetch
from fedrouter.data.published import BENCHMARKS, Published, PublishedFile, benchmark
from fedrouter.errors import BadInput, FedrouterError

CONTENT = bytes(range(256)) * 20_000  # five million bytes: several pieces
SHA = hashlib.sha256(CONTENT).hexdigest()
FILE = PublishedFile("table.pkl", "https://nowhere.invalid/table.pkl", SHA, len(CONTENT))
BENCH = Published("bench", "A benchmark", "https://nowhere.invalid", "none", (FILE,), "table.pkl")


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
    result = fetch(BENCH, FILE, tmp_path / "new", watch=lambda *step: seen.append(step))
    assert result.path.read_bytes() == CONTENT
    assert (result.sha256, result.size, result.verified, result.fetched) == (SHA, len(CONTENT), True, True)
    assert seen[-1] == ("table.pkl", len(CONTENT), len(CONTENT))
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["table.pkl"]
    assert server.asked == [("/mirror/bench/table.pkl", None)]


def test_a_file_that_is_there_and_right_is_not_fetched_again(server, tmp_path):
    (tmp_path / "table.pkl").write_bytes(CONTENT)
    result = fetch(BENCH, FILE, tmp_path)
    assert (result.fetched, result.verified) == (False, True)
    assert not server.asked


def test_a_file_that_is_there_and_wrong_is_named_and_left_alone(server, tmp_path):
    (tmp_path / "table.pkl").write_bytes(b"mine")
    with pytest.raises(FedrouterError, match=rf"table\.pkl exists, but its sha256 is [0-9a-f]{{64}} and not {SHA}"):
        fetch(BENCH, FILE, tmp_path)
    assert (tmp_path / "table.pkl").read_bytes() == b"mine"


def test_a_download_goes_on_where_it_was_cut_short(server, tmp_path):
    server.stop_after = 3_000_000
    with pytest.raises(FedrouterError, match=r"ended after 3,000,000 of 5,120,000 bytes.*the same command resumes it"):
        fetch(BENCH, FILE, tmp_path)
    assert not (tmp_path / "table.pkl").exists()
    server.stop_after = None
    assert fetch(BENCH, FILE, tmp_path).path.read_bytes() == CONTENT
    assert server.asked[-1][1] == "bytes=3000000-"
    assert [path.name for path in tmp_path.iterdir()] == ["table.pkl"]


def test_a_server_without_ranges_sends_all_of_it_again(server, tmp_path):
    server.ranges = False
    (tmp_path / "table.pkl.part").write_bytes(CONTENT[:1000])
    assert fetch(BENCH, FILE, tmp_path).path.read_bytes() == CONTENT


def test_a_finished_part_is_only_checked(server, tmp_path):
    (tmp_path / "table.pkl.part").write_bytes(CONTENT)
    assert fetch(BENCH, FILE, tmp_path).fetched
    assert not server.asked
    # Where the size is not known the server is asked, and says that there is no more.
    other = tmp_path / "other"
    other.mkdir()
    (other / "table.pkl.part").write_bytes(CONTENT)
    assert fetch(BENCH, PublishedFile("table.pkl", None, SHA), other).verified
    assert server.asked == [("/mirror/bench/table.pkl", "bytes=5120000-")]


@pytest.mark.parametrize("content", [CONTENT[:-1] + b"x", CONTENT + b"more", b"short"])
def test_a_wrong_file_is_refused_and_nothing_stays(server, tmp_path, content):
    server.content = content
    with pytest.raises(FedrouterError, match=rf"refused, its sha256 is [0-9a-f]{{64}} and not {SHA}"):
        fetch(BENCH, FILE, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_damaged_part_is_refused_and_the_next_try_starts_anew(server, tmp_path):
    (tmp_path / "table.pkl.part").write_bytes(b"rubbish")
    with pytest.raises(FedrouterError, match="refused"):
        fetch(BENCH, FILE, tmp_path)
    assert fetch(BENCH, FILE, tmp_path).verified


def test_what_the_server_does_not_have_is_said_with_what_to_do(server, tmp_path):
    missing = PublishedFile("absent.pkl", None, SHA)
    with pytest.raises(FedrouterError) as caught:
        fetch(BENCH, missing, tmp_path)
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
        fetch(BENCH, FILE, tmp_path)
    said = str(caught.value)
    for part in ("Connection refused", f"http://127.0.0.1:{port}/bench/table.pkl", str(tmp_path / "table.pkl"), SHA):
        assert part in said
    (tmp_path / "table.pkl").write_bytes(CONTENT)
    assert fetch(BENCH, FILE, tmp_path).verified


# Checksums that nobody knows


UNKNOWN = PublishedFile("table.pkl", "https://nowhere.invalid/table.pkl")


def test_without_a_checksum_a_user_has_to_say_so(server, tmp_path):
    with pytest.raises(BadInput, match=r"no checksum is known for table\.pkl.*--sha256.*--unverified"):
        fetch(BENCH, UNKNOWN, tmp_path)
    assert not server.asked
    result = fetch(BENCH, UNKNOWN, tmp_path, unverified=True)
    assert (result.sha256, result.verified) == (SHA, False)
    again = fetch(BENCH, UNKNOWN, tmp_path, unverified=True)
    assert (again.sha256, again.verified, again.fetched) == (SHA, False, False)


def test_a_users_checksum_counts_over_the_tables(server, tmp_path):
    other = b"another version"
    server.content = other
    assert fetch(BENCH, UNKNOWN, tmp_path / "a", sha256=hashlib.sha256(other).hexdigest()).verified
    assert fetch(BENCH, FILE, tmp_path / "b", sha256=hashlib.sha256(other).hexdigest()).verified
    with pytest.raises(FedrouterError, match="refused"):
        fetch(BENCH, UNKNOWN, tmp_path / "c", sha256=SHA)


def test_nothing_unverified_is_pieced_together(server, tmp_path):
    (tmp_path / "table.pkl.part").write_bytes(b"half of an older version")
    assert fetch(BENCH, UNKNOWN, tmp_path, unverified=True).sha256 == SHA
    assert server.asked[-1][1] is None


# Addresses


@pytest.mark.parametrize(
    "mirror", ["http://example.org", "ftp://example.org", "file:///etc", "http://127.0.0.1.example"]
)
def test_only_https_leaves_this_machine(monkeypatch, tmp_path, mirror):
    monkeypatch.setenv(MIRROR, mirror)
    with pytest.raises(BadInput, match="expected an https URL"):
        fetch(BENCH, FILE, tmp_path)


def test_a_redirect_may_not_leave_https_either(server, tmp_path):
    server.redirect = "http://example.org/table.pkl"
    with pytest.raises(BadInput, match=r"http://example\.org/table\.pkl: expected an https URL"):
        fetch(BENCH, FILE, tmp_path)
    server.redirect = None
    assert fetch(BENCH, FILE, tmp_path).verified


def test_every_published_address_is_https_and_every_checksum_is_one():
    assert set(BENCHMARKS) == {"routerbench", "routerbench-5shot", "sprout", "proxrouter"}
    for published in BENCHMARKS.values():
        assert published.license
        for file in published.files:
            assert file.url is None or file.url.startswith("https://")
            assert file.sha256 is None or len(bytes.fromhex(file.sha256)) == 32


def test_a_benchmark_whose_address_nobody_knows_says_whom_to_ask(monkeypatch, tmp_path):
    monkeypatch.delenv(MIRROR, raising=False)
    prox = benchmark("proxrouter")
    with pytest.raises(FedrouterError, match=r"no public URL.*2510\.09852"):
        fetch(prox, prox.files[0], tmp_path)
    (tmp_path / "proxrouter.parquet").write_bytes(b"given by hand")
    assert not fetch(prox, prox.files[0], tmp_path, unverified=True).fetched


def test_an_unknown_benchmark_is_named_with_the_known_ones():
    with pytest.raises(BadInput, match="no benchmark 'routerbnech': expected routerbench, "):
        benchmark("routerbnech")
