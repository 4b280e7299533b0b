"""Every code block of README.md and the pages in docs/ that can run is run, as it stands on the page."""

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from docs.blocks import PAGES, PROJECT, RUN, SHOWN, blocks
from docs.prepared import prepare, serve

ALL = [block for page in PAGES for block in blocks(page)]


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    return prepare(tmp_path_factory.mktemp("prepared"))


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Path:
    return serve(tmp_path_factory.mktemp("served"))


def play(page: Path, folder: Path, slow: bool) -> None:
    """Run a page's blocks in order, in one folder and one Python namespace, as a reader would."""
    names: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(page):
        if not block.runs or (block.slow and not slow):
            continue
        if block.language == "python":
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(block.code, block.place, "exec"), names)
            continue
        environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block.code],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, f"{block.place}\n{block.code}\n{done.stdout}\n{done.stderr}"


def pages_with(slow: bool) -> list[Path]:
    return [page for page in PAGES if any(block.runs and block.slow == slow for block in blocks(page))]


def called(page: Path) -> str:
    return str(page.relative_to(PROJECT))


@pytest.mark.parametrize("page", pages_with(slow=False), ids=called)
def test_the_quick_blocks_of_a_page_run(page, files, tmp_path, monkeypatch):
    shutil.copytree(files, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    play(page, tmp_path, slow=False)


@pytest.mark.slow
@pytest.mark.parametrize("page", pages_with(slow=True), ids=called)
def test_all_blocks_of_a_page_run(page, files, served, tmp_path, monkeypatch):
    for folder in (files, served):
        shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    play(page, tmp_path, slow=True)


@pytest.mark.parametrize("block", ALL, ids=lambda block: block.place)
def test_a_block_says_what_it_is(block):
    assert block.language in RUN | SHOWN, f"expected a language of {sorted(RUN | SHOWN)}, got {block.language!r}"
    if block.language in SHOWN or block.mark in ("", "slow"):
        return
    kind, _, rest = block.mark.partition(": ")
    assert kind in ("skip", "tested by")
    assert len(rest) > 8, "expected a reason, or the path of a test"
    if kind == "tested by":
        page = block.page.name
        assert page in (PROJECT / rest).read_text() or Path(rest).name == Path(__file__).name


def test_no_block_is_missed():
    """Every line of fence belongs to a block that was found."""
    for page in PAGES:
        assert len(re.findall(r"^ *```", page.read_text(), re.MULTILINE)) == 2 * len(blocks(page)), page
