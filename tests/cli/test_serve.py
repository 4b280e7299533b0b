"""What `fedrouter serve` prints once it is ready: commands that can be pasted into a shell."""

import os
import subprocess

import pytest

from fedrouter.cli.gateway.serve import announce
from fedrouter.cli.output import Voice

SHOW_ARGUMENTS = 'curl() { for each in "$@"; do echo "$each"; done; }; '


def header_of(printed):
    """The header with the key in the printed curl command, as a shell makes it."""
    (command,) = (line for line in printed.splitlines() if "curl" in line)
    env = {**os.environ, "FEDROUTER_KEY": "fr-mine"}
    done = subprocess.run(["sh", "-c", SHOW_ARGUMENTS + command], env=env, capture_output=True, text=True, check=True)
    return next((line for line in done.stdout.splitlines() if line.startswith("Authorization")), None)


@pytest.mark.parametrize(
    ("key", "auth", "header"),
    [
        ("fr-new", True, "Authorization: Bearer fr-new"),
        (None, True, "Authorization: Bearer fr-mine"),
        (None, False, None),
    ],
)
def test_the_first_request_that_it_suggests_has_the_key(capsys, key, auth, header):
    announce(Voice(as_json=False), "http://localhost:8080", key, auth=auth)
    printed = capsys.readouterr().out
    assert header_of(printed) == header
    assert ("Page:" in printed) == auth
    assert ("export FEDROUTER_KEY=" in printed) == (auth and key is None)
