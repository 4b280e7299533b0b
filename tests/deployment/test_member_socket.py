"""A member's process and the relay: what crosses the socket, who may use it, and an epoch of real members over it."""

import json
import os
import socket
import stat
import threading
from contextlib import ExitStack, contextmanager, suppress

import pytest

pytest.importorskip("flwr")

from federation.federations import Federation
from fedrouter.deployment.member import listening, serve
from fedrouter.engines.flower.client_relay import ask
from fedrouter.federation.epoch import Job, run_epoch
from fedrouter.federation.frame import Frame

TOKEN = bytes(range(32))


class Echo:
    def __init__(self):
        self.asked = []

    def answer(self, content):
        self.asked.append(content)
        return content[::-1]


@contextmanager
def answering(folder, member):
    """A member that answers in a folder, one message after the other."""
    folder.mkdir(exist_ok=True)
    (folder / "token").write_bytes(TOKEN)
    stopping = threading.Event()

    def work(listener):
        while not stopping.is_set():
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            with connection:
                serve(connection, TOKEN, member)

    with listening(folder) as listener:
        thread = threading.Thread(target=work, args=(listener,))
        thread.start()
        try:
            yield
        finally:
            stopping.set()
            thread.join()


def test_the_relay_hands_over_bytes_of_any_size(tmp_path):
    member = Echo()
    with answering(tmp_path, member):
        for content in (b"x", os.urandom(3_000_000)):
            assert ask(tmp_path, content) == content[::-1]
    assert len(member.asked) == 2
    assert not (tmp_path / "socket").exists()


def test_a_caller_without_the_token_gets_nothing_and_the_next_one_is_answered(tmp_path):
    member, asking = Echo(), b"who is there?"
    with answering(tmp_path, member):
        assert stat.S_IMODE((tmp_path / "socket").stat().st_mode) == 0o660
        for said in (bytes(32) + len(asking).to_bytes(8, "big") + asking, TOKEN + (2**40).to_bytes(8, "big"), b"short"):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(str(tmp_path / "socket"))
                connection.sendall(said)
                connection.shutdown(socket.SHUT_WR)
                with suppress(ConnectionResetError):
                    assert connection.recv(100) == b""
        assert not member.asked
        assert ask(tmp_path, asking) == asking[::-1]


def test_a_relay_without_a_member_fails_and_does_not_invent_a_reply(tmp_path):
    (tmp_path / "token").write_bytes(TOKEN)
    with pytest.raises(FileNotFoundError):
        ask(tmp_path, b"anybody?")


class OverSockets:
    """A link that reaches members as the relay does."""

    def __init__(self, folder):
        self.folder = folder

    def exchange(self, messages, seconds, on_reply):
        for name, content in messages.items():
            ask(self.folder / name, content)  # a first copy, whose reply is lost
            on_reply(name, ask(self.folder / name, content))


def test_an_epoch_over_sockets_has_the_sum_of_its_members(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    federation = Federation(tmp_path / "data", epsilon=0.0)
    try:
        with ExitStack() as held:
            for name in federation.names:
                held.enter_context(answering(tmp_path / name, federation.members[name]))
            total = run_epoch(
                federation.coordinator, OverSockets(tmp_path), Job(epsilon=0.0, least_rows=0, consent=True)
            )
        assert list(total.survivors) == sorted(federation.names)
        assert (total.vector == federation.exact()).all()
    finally:
        federation.close()


def test_bytes_that_are_no_message_are_refused_by_the_member(tmp_path):
    (tmp_path / "data").mkdir()
    federation = Federation(tmp_path / "data")
    try:
        with answering(tmp_path / "a", federation.members[federation.names[0]]):
            for content in (b"garbage", json.dumps({"a": 1}).encode()):
                assert Frame.unpack(ask(tmp_path / "a", content)).kind == "refused"
    finally:
        federation.close()
