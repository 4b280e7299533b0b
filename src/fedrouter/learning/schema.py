"""JSON Schema validation and pattern matching in a worker process, with limits on size and time.

Schemas and answers come from clients and models, so the work must be bounded: `jsonschema_rs` runs in a process of its
own that is killed at the time limit, fetches no remote references, and matches patterns in linear time. An operator's
pattern may be slow on some answers. A thread would not do, because neither can be interrupted and both hold Python's
interpreter lock.
"""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import IO, Any

from fedrouter.errors import MissingExtra

MAX_BYTES = 1 << 18
"""Bytes of a schema and a value together, as JSON."""
SECONDS = 2.0
"""Time limit of one validation."""
START_SECONDS = 30.0
"""Time limit for the worker to start."""
READY = b"ready\n"
"""The first line that a worker writes."""
MEMORY = 1 << 30
"""Bytes of address space that the worker may use."""


class Undecidable(Exception):
    """It cannot be said whether the value is valid: not a schema, a remote reference, too large, or too slow."""


class SchemaWorker:
    """Validates in one worker process, which starts on first use and again after it was killed. Thread-safe."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._end: Callable[[], object] | None = None

    def is_valid(self, value: Any, schema: Any) -> bool:
        """Whether a JSON value is valid under a schema; :class:`Undecidable` if that cannot be said in time."""
        return self._decide("schema", schema, value)

    def is_found(self, pattern: str, text: str) -> bool:
        """Whether a regular expression is found in a text; :class:`Undecidable` if that cannot be said in time."""
        return self._decide("pattern", pattern, text)

    def _decide(self, *question: Any) -> bool:
        try:
            line = json.dumps(question).encode() + b"\n"
        except (ValueError, RecursionError):
            raise Undecidable from None
        if len(line) > MAX_BYTES:
            raise Undecidable
        with self._lock:
            verdict = self._answer(line)
        if verdict not in (b"1\n", b"0\n"):
            raise Undecidable
        return verdict == b"1\n"

    def close(self) -> None:
        """End the worker; it starts again when it is needed."""
        self._process = None
        if self._end is not None:
            self._end()

    def _answer(self, line: bytes) -> bytes:
        if (self._process is None or self._process.poll() is not None) and not self._started():
            self.close()  # its late "ready" would be read as a verdict, and each verdict as that of the next value
            return b""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            deadline = time.monotonic() + self._seconds
            _write(process.stdin, line, deadline)
            verdict = _read_line(process.stdout, deadline)
        except (OSError, TimeoutError):
            verdict = b""
        if not verdict:  # too slow, or it crashed
            self.close()
        return verdict

    def _started(self) -> bool:
        """Start the worker; False if it does not report in time that it is ready."""
        self.close()
        try:
            import jsonschema_rs  # noqa: F401
        except ImportError:
            raise MissingExtra("The judge json_schema", "serve") from None
        self._process = subprocess.Popen(
            # -P: it imports from where this process does, never from the folder in which that was started
            [sys.executable, "-P", "-c", f"from {__name__} import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            bufsize=0,
        )
        self._end = weakref.finalize(self, _end, self._process)  # also when the interpreter exits
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        try:
            return _read_line(self._process.stdout, time.monotonic() + START_SECONDS) == READY
        except (OSError, TimeoutError):
            return False


def serve() -> None:
    """The worker's loop: a question per line in, a verdict per line out; ends with its input."""
    import resource

    import jsonschema_rs

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

    def refuse(uri: str) -> Any:
        raise ValueError(uri)

    out = sys.stdout.buffer
    out.write(READY)
    out.flush()
    for line in sys.stdin.buffer:
        try:
            kind, rule, value = json.loads(line)
            if kind == "schema":
                validator = jsonschema_rs.validator_for(
                    rule, retriever=refuse, pattern_options=jsonschema_rs.RegexOptions()
                )
                yes = validator.is_valid(value)
            else:
                yes = re.search(rule, value) is not None
            verdict = b"1\n" if yes else b"0\n"
        except BaseException:  # also a panic of the library, which is no Exception
            verdict = b"?\n"
        out.write(verdict)
        out.flush()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def _write(pipe: IO[bytes], data: bytes, deadline: float) -> None:
    view = memoryview(data)
    while view:
        if not select.select([], [pipe], [], max(0.0, deadline - time.monotonic()))[1]:
            raise TimeoutError
        view = view[os.write(pipe.fileno(), view) :]


def _read_line(pipe: IO[bytes], deadline: float) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        if not select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise TimeoutError
        part = os.read(pipe.fileno(), 64)
        if not part:
            return b""
        line += part
    return line


WORKER = SchemaWorker()
"""The worker that all judges of a process share."""
