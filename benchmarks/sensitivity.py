"""How far one evaluation moves the answer to each verb, against what it states; writes docs/results/sensitivity.md.

    .venv/bin/python benchmarks/sensitivity.py --before ../before/src

`--before` names the package folder of an older checkout, to measure the same there.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[1]
MODULE = PROJECT / "src" / "fedrouter" / "testing" / "sensitivity.py"
OLD = "35c12aa"
"""The last commit without exact products of rows."""


def measured() -> dict[str, list[tuple[str, float, float]]]:
    """By verb: part, stated and measured movement. The module is loaded from here, the package from the path."""
    spec = importlib.util.spec_from_file_location("sensitivity", MODULE)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["sensitivity"] = module
    spec.loader.exec_module(module)
    return {verb: [(m.part, m.stated, m.measured) for m in module.measure(verb)] for verb in module.VERBS}


def in_package(source: Path) -> dict[str, list[tuple[str, float, float]]]:
    run = [sys.executable, __file__, "--json"]
    done = subprocess.run(run, env=os.environ | {"PYTHONPATH": str(source)}, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true", help="print the measurements instead of writing the page")
    parser.add_argument("--before", type=Path, help="package folder of an older checkout")
    options = parser.parse_args()
    if options.json:
        print(json.dumps(measured()))
        return
    now = in_package(PROJECT / "src")
    before = in_package(options.before) if options.before else {}
    rows = []
    for verb, parts in now.items():
        if parts:
            shares = [f"{max(v / s for _, s, v in some):.2f}" if some else "" for some in (parts, before.get(verb, []))]
            rows.append(f"| `{verb}` | {len(parts)} | {' | '.join(shares)} |")
    silent = ", ".join(f"`{verb}`" for verb, parts in now.items() if not parts)
    page = f"""# Sensitivity of every verb

How far one evaluation moves a part of an answer before noise, as a share of the sensitivity that the verb states and
the noise is made for (l2 norms; above 1 is a breach): the largest over all parts and over logs of 1 to 600 rows with
and without one more row (first, in the middle, last). Requests are adversarial: networks that predict a huge multiple
of a rounding error, centres and landmarks that differ by less than rounding, so that the last bits of a matrix product
decide. Sizes cross those at which OpenBLAS changes kernels.

    .venv/bin/python benchmarks/sensitivity.py --before ../before/src

`{OLD}` is the last version whose matrix products were in floating point.

| verb | parts | largest share | at `{OLD}` |
|---|---|---|---|
{chr(10).join(rows)}

{silent} have no noise: under differential privacy they read no rows.

The same measurements are a test (`tests/federation/dp/test_sensitivity.py`), which fails for a verb that adds noise
and has no case.
"""
    (PROJECT / "docs" / "results" / "sensitivity.md").write_text(page)


if __name__ == "__main__":
    main()
