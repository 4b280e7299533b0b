"""`fedrouter data` as a user runs it: a real server, real files."""

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from cli import command
from fedrouter.data.partition import partition
from fedrouter.data.read import read
from fedrouter.data.split import write_table


def run(*arguments, **environment):
    return command.run("data", *arguments, **environment)


def answer(*arguments, **environment):
    return command.answer("data", *arguments, **environment)


@pytest.fixture(scope="module")
def table(tmp_path_factory, world):
    some = world.evaluations.of_queries(np.arange(0, world.evaluations.queries, 10))
    return write_table(tmp_path_factory.mktemp("data") / "table.parquet", some, world.encoder)


@pytest.fixture(scope="module")
def mirror(tmp_path_factory):
    """A folder served over http on this machine."""
    folder = tmp_path_factory.mktemp("mirror")

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *arguments):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("routerbnech", "no benchmark 'routerbnech': expected routerbench, routerbench-5shot"),
        ("routerbench", "cannot be downloaded: the server answers 404"),
        ("routerbench", "must have sha256 ba4f77f19517610a707c374e99322d7750c30fc4ae7ff5527888595a1e65d36d"),
    ],
)
def test_get_says_in_words_what_is_wrong(mirror, tmp_path, name, said):
    done = run("get", name, "--to", tmp_path, FEDROUTER_DATA_MIRROR=mirror)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_split_is_the_papers_and_its_files_read_back(table, tmp_path):
    out = tmp_path / "clients"
    document = answer("split", "--data", table, "--clients", 3, "--alpha", 0.5, "--seed", 7, "--out", out)
    dataset = read(table)
    expected = partition(dataset.evaluations, 3, 0.5, 0.45, 7)
    assert document["encoder"] == "static"
    assert document["models"] == list(dataset.evaluations.pool.names)
    for client, entry in zip(expected, document["clients"], strict=True):
        assert (entry["name"], entry["train"], entry["test"]) == (client.name, len(client.train), client.test.queries)
        log = read(entry["log"], pool=dataset.evaluations.pool).evaluations
        assert log.digest() == client.train.digest()
        assert read(entry["own_test"]).evaluations.digest() == client.test.digest()
    assert read(document["test"]).evaluations.queries == sum(client.test.queries for client in expected)
    assert sorted(path.name for path in out.iterdir()) == [
        *(f"client-{number}{kind}.parquet" for number in (1, 2, 3) for kind in ("-test", "")),
        "test.parquet",
    ]


def test_a_split_is_shown_and_never_overwrites(table, tmp_path):
    out = tmp_path / "clients"
    shown = run("split", "--data", table, "--clients", 2, "--model-alpha", "uniform", "--out", out)
    assert shown.returncode == 0, shown.stderr
    assert "client-2" in shown.stdout
    again = run("split", "--data", table, "--clients", 2, "--out", out)
    assert again.returncode == 2
    assert "not empty; choose a new folder" in again.stderr


@pytest.mark.parametrize(
    ("flag", "value", "said"),
    [
        ("--model-alpha", "much", "--model-alpha: expected a number or 'uniform', got 'much'"),
        ("--clients", 0, "clients: expected at least 1"),
        ("--data", "absent.parquet", "absent.parquet: no such file"),
    ],
)
def test_a_split_that_cannot_be_leaves_no_folder(table, tmp_path, flag, value, said):
    given = {"--data": table, "--out": tmp_path / "clients"} | {flag: value}
    done = run("split", *(part for pair in given.items() for part in pair))
    assert done.returncode == 2
    assert said in done.stderr
    assert not (tmp_path / "clients").exists()
