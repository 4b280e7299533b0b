"""The published benchmarks: URLs, checksums and licenses of their files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fedrouter.errors import BadInput

_PAGE: Final = "https://huggingface.co/datasets/withmartian/routerbench"
_FILES: Final = f"{_PAGE}/resolve/784021482c3f320c6619ed4b3bb3b41a21424fcb"
_NO_LICENSE: Final = "none stated on its page; ask its authors before you redistribute it"


@dataclass(frozen=True)
class Published:
    """One benchmark, which is one file."""

    name: str
    title: str
    page: str
    license: str
    file: str
    url: str
    sha256: str
    size: int


# The checksums and sizes are those of the Git LFS pointers on the hub.
BENCHMARKS: Final = {
    benchmark.name: benchmark
    for benchmark in (
        Published(
            "routerbench",
            "RouterBench, 0-shot: 36,497 queries, 11 models, 86 tasks",
            _PAGE,
            _NO_LICENSE,
            "routerbench_0shot.pkl",
            f"{_FILES}/routerbench_0shot.pkl",
            "ba4f77f19517610a707c374e99322d7750c30fc4ae7ff5527888595a1e65d36d",
            99_567_659,
        ),
        Published(
            "routerbench-5shot",
            "RouterBench, 5-shot: the same models, prompts with five worked examples",
            _PAGE,
            _NO_LICENSE,
            "routerbench_5shot.pkl",
            f"{_FILES}/routerbench_5shot.pkl",
            "fbd7d3d16fba2759a18fa0ad44409d3e0e92ba80d03d90827eed1a6d084c9ffe",
            171_091_324,
        ),
    )
}


def benchmark(name: str) -> Published:
    """The benchmark of this name."""
    if name not in BENCHMARKS:
        raise BadInput(f"no benchmark {name!r}: expected {', '.join(BENCHMARKS)}")
    return BENCHMARKS[name]
