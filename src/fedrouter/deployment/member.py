"""A member's process: answers what the relay hands it over a Unix socket, and keeps a SuperNode running beside it."""

from __future__ import annotations

import hmac
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from fedrouter.deployment.address import free_port
from fedrouter.deployment.directories import MemberDirectory
from fedrouter.deployment.lock import process_lock, stop_signal
from fedrouter.deployment.own_log import OwnLog
from fedrouter.deployment.program import Program, check_user
from fedrouter.engines.flower.programs import environment, supernode_command
from fedrouter.errors import BadInput, FedrouterError
from fedrouter.federation.frame import Frame
from fedrouter.federation.identity import fingerprint
from fedrouter.files import make_private_folder, replace_file

if TYPE_CHECKING:
    from fedrouter.federation.member import Member

TOKEN_BYTES = 32
MOST_BYTES = 1 << 28
LOOK = 0.5
"""Seconds between two looks at the SuperNode while nothing is asked."""
READ_TIMEOUT = 30.0
PAUSES = (2.0, 5.0, 10.0)
"""Seconds before a SuperNode that ended is started again; the last one from then on."""


class Answers(Protocol):
    """A :class:`fedrouter.federation.member.Member`."""

    def answer(self, content: bytes) -> bytes: ...


def run_member(
    directory: MemberDirectory, on_message: Callable[[str], None], user: str | None = None, relay: Path | None = None
) -> None:
    """Be a member until SIGTERM or Ctrl-C.

    The SuperNode runs as ``user``, or as we do. With ``relay`` we start none: something else runs it, with the folder's
    key and socket.
    """
    folder = directory.node_folder if relay is None else relay.absolute()
    with process_lock(directory.pid_file), ExitStack() as held:
        stopping = held.enter_context(stop_signal())
        own = OwnLog(str(directory.config["log"]), str(directory.config["encoder"]))
        member = held.enter_context(opened(directory, own))
        member.policy, own.stamp()  # what cannot be read is said now, and not in an epoch
        prepare_relay(directory, folder, user, own=relay is None)
        listener = held.enter_context(listening(folder, user))
        token = (folder / "token").read_bytes()
        node = None if relay is not None else _Node(directory, folder, user, on_message)
        if node is not None:
            held.callback(node.end)
        routers = _Routers(directory, on_message)
        held.callback(routers.end)
        while not stopping.is_set():
            routers.look()
            if node is not None:
                node.look()
            with suppress(TimeoutError):
                connection, _ = listener.accept()
                with connection:
                    asked = serve(connection, token, member)
                if asked:
                    on_message(asked)


@contextmanager
def opened(directory: MemberDirectory, own: OwnLog | None = None) -> Iterator[Member]:
    """The member of a state directory."""
    from fedrouter.federation.member import Log
    from fedrouter.federation.member import Member as Opened

    log = own or OwnLog(str(directory.config["log"]), str(directory.config["encoder"]))

    def read_log() -> Log:
        rows, encoder = log.read()
        return Log(rows, encoder.name)

    member = Opened(directory.path, directory.name, read_log)
    try:
        yield member
    finally:
        member.close()


def last_members(directory: MemberDirectory) -> dict[str, str]:
    """Fingerprints of the other members of the last epoch, by name."""
    with opened(directory) as member:
        terms = member.journal.last_terms()
    return {} if terms is None else {n: fingerprint(key) for n, key in terms.keys.items() if n != directory.name}


def serve(connection: socket.socket, token: bytes, member: Answers) -> str:
    """Answer one message and say which; a caller without the token, or one that stops in the middle, gets nothing."""
    connection.settimeout(READ_TIMEOUT)
    with suppress(OSError), connection.makefile("rb") as asked:
        if not hmac.compare_digest(asked.read(TOKEN_BYTES), token):
            return ""
        size = int.from_bytes(asked.read(8), "big")
        content = asked.read(size) if 0 < size <= MOST_BYTES else b""
        if not content or len(content) != size:
            return ""
        answer = member.answer(content)
        connection.sendall(len(answer).to_bytes(8, "big") + answer)
        outcome = "refused, see `status`" if _kind(answer) == "refused" else f"answered, {len(answer):,} bytes"
        return f"{_kind(content)}: {outcome}"
    return ""


def _kind(content: bytes) -> str:
    try:
        return Frame.unpack(content).kind[:32]
    except FedrouterError:
        return "a message of another kind"


@contextmanager
def listening(folder: Path, user: str | None = None) -> Iterator[socket.socket]:
    """A Unix socket in a folder, for the owner and the group of the folder or for ``user``."""
    path = folder / "socket"
    with socket.socket(socket.AF_UNIX) as listener:
        path.unlink(missing_ok=True)
        try:
            listener.bind(str(path))
        except OSError as error:
            raise BadInput(f"{path}: cannot listen there ({error}); --relay names another folder") from None
        path.chmod(0o660)
        if user is not None:
            _give(path, user)
        listener.listen(16)
        listener.settimeout(LOOK)
        try:
            yield listener
        finally:
            path.unlink(missing_ok=True)


def prepare_relay(directory: MemberDirectory, folder: Path, user: str | None, own: bool) -> None:
    """Put everything that the SuperNode needs into its folder, and nothing else."""
    if not own:
        folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        for name in ("node.key", "token"):
            replace_file(folder / name, (directory.node_folder / name).read_bytes())
            (folder / name).chmod(0o640)  # whatever the umask: the SuperNode is of the folder's group
        replace_file(folder / "ca.pem", directory.authority.read_bytes())
        (folder / "ca.pem").chmod(0o644)
        return
    make_private_folder(folder / "flower")
    make_private_folder(folder)
    if user is not None:
        # Others may pass through the member's directory, and still read nothing in it.
        directory.path.chmod(0o711)
        for path in (folder, *folder.rglob("*")):
            _give(path, user)
        check_user(user, folder)


def _give(path: Path, user: str) -> None:
    import shutil

    try:
        shutil.chown(path, user)
    except (LookupError, PermissionError) as error:
        raise BadInput(f"--supernode-user {user}: {path} cannot be given to that user ({error})") from None


class _Routers:
    """Makes routers of new totals in a process of its own, so that the member goes on answering."""

    def __init__(self, directory: MemberDirectory, on_message: Callable[[str], None]) -> None:
        self._directory, self._on_message = directory, on_message
        self._tried = 0
        self._making: subprocess.Popen[str] | None = None

    def look(self) -> None:
        if self._making is not None and self._making.poll() is not None:
            said, error = self._making.communicate()
            if said or self._making.returncode:
                self._on_message(said or f"no router was made: {error.strip()}")
            self._making = None
        totals = (self._directory.path / "totals").glob("epoch-*.json")
        newest = max((int(path.stem.removeprefix("epoch-")) for path in totals), default=0)
        if self._making is None and newest > self._tried:
            self._tried = newest
            self._making = subprocess.Popen(
                [sys.executable, "-m", "fedrouter.deployment.home", str(self._directory.path)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )

    def end(self) -> None:
        if self._making is not None:
            self._making.kill()
            self._making.communicate()


class _Node:
    """The SuperNode, started again when it ends; a SuperLink that does not know its key ends it."""

    def __init__(
        self, directory: MemberDirectory, folder: Path, user: str | None, on_message: Callable[[str], None]
    ) -> None:
        self._directory, self._folder, self._user, self._on_message = directory, folder, user, on_message
        self._program: Program | None = None
        self._failures, self._due = 0, 0.0

    def look(self) -> None:
        if self._program is not None and self._program.ended:
            self._program.end()
            self._program = None
            pause = PAUSES[min(self._failures, len(PAUSES) - 1)]
            self._failures, self._due = self._failures + 1, time.monotonic() + pause
            if self._failures == 1:
                self._on_message(
                    "not connected: the coordinator is not reachable, or has not approved this member yet; "
                    f"trying again (details in {self._folder / 'supernode.log'})"
                )
        if self._program is None and time.monotonic() >= self._due:
            self._program = self._start()

    def _start(self) -> Program:
        home = environment(self._folder / "flower")
        if self._user is not None:
            home |= {"HOME": str(self._folder), "USER": self._user, "LOGNAME": self._user}
        return Program(
            supernode_command(
                str(self._directory.config["address"]),
                self._directory.authority,
                self._folder / "node.key",
                self._folder,
                free_port(),
            ),
            self._folder / "supernode.log",
            home,
            self._user,
        )

    def end(self) -> None:
        if self._program is not None:
            self._program.end()
