"""What a client is told when it cannot connect: no coordinator, another one, no TLS, a wrong clock."""

import socket
import ssl
import threading
from contextlib import contextmanager
from email.utils import formatdate
from time import time

import pytest

pytest.importorskip("cryptography")

from fedrouter.deployment.client.connection import connection_error
from fedrouter.deployment.state.directories import create_coordinator


@pytest.fixture(scope="module")
def coordinators(tmp_path_factory):
    folder = tmp_path_factory.mktemp("coordinators")
    return [create_coordinator(folder / name, ("localhost",)) for name in ("own", "other")]


@contextmanager
def serving(coordinator=None, ahead=0.0):
    """A server that answers one request, with TLS if a coordinator lends its certificate; its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            connection, _ = server.accept()
            with connection:
                try:
                    if coordinator is not None:
                        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                        context.load_cert_chain(coordinator.certificate, coordinator.key)
                        connection = context.wrap_socket(connection, server_side=True)
                    connection.recv(10_000)
                    date = formatdate(time() + ahead, usegmt=True)
                    connection.sendall(f"HTTP/1.1 404 Not Found\r\ndate: {date}\r\ncontent-length: 0\r\n\r\n".encode())
                    connection.close()
                except OSError:
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join()


def test_a_coordinator_that_answers_is_no_error_even_if_it_shows_others_nothing(coordinators):
    own, _ = coordinators
    with serving(own) as address:
        assert connection_error(address, own.authority) is None


def test_another_federations_coordinator_is_named_as_such(coordinators):
    own, other = coordinators
    with serving(other) as address:
        found = connection_error(address, own.authority)
    assert found.startswith(f"{address} is not the coordinator of this federation")


def test_a_server_without_tls_is_named_as_such(coordinators):
    with serving() as address:
        assert connection_error(address, coordinators[0].authority) == f"{address} does not speak TLS"


def test_an_address_at_which_nothing_listens_cannot_be_reached(coordinators):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
        found = connection_error(address, coordinators[0].authority)
    assert found == f"{address} cannot be reached (ConnectionRefusedError)"


@pytest.mark.parametrize(("ahead", "where"), [(300.0, "behind"), (-300.0, "ahead of"), (-10.0, "ahead of")])
def test_a_wrong_clock_is_named_because_signatures_would_be_refused(coordinators, ahead, where):
    own, _ = coordinators
    with serving(own, ahead) as address:
        found = connection_error(address, own.authority)
    assert "this machine's clock is" in found
    assert f"s {where} the coordinator's" in found
