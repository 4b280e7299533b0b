"""Every example runs, and prints what it promises."""

import subprocess
import sys

import pytest

from conftest import PROJECT

PRINTED = {
    "day_zero.py": ["1000 requests, version", "of the quality of"],
    "federation_in_one_process.py": ["Identical to the earlier router, to the bit: True"],
    "learn_from_two_logs.py": ["choice at 30 points of accuracy per dollar: small"],
    "own_data.py": ["of the accuracy of"],
    "own_family.py": ["of 200 queries"],
    "own_judge.py": ["0.0 by judge:python_parses", "1.0 by judge:exact_match"],
}
"""What must be among the lines that each example prints."""


EXAMPLES = [
    pytest.param(path, id=path.name, marks=[pytest.mark.slow] if path.name == "day_zero.py" else [])
    for path in sorted((PROJECT / "examples").glob("*.py"))
]


@pytest.mark.parametrize("path", EXAMPLES)
def test_an_example_runs(path, tmp_path):
    done = subprocess.run([sys.executable, str(path)], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    for line in PRINTED[path.name]:
        assert line in done.stdout
    assert len(done.stdout.splitlines()) >= 3
    assert not list(tmp_path.iterdir()), "an example leaves nothing behind"
