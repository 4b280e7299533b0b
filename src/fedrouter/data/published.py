"""The published benchmarks: URLs, checksums and licenses of their files."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from fedrouter.errors import BadInput

_ROUTERBENCH: Final = (
    "https://huggingface.co/datasets/withmartian/routerbench/resolve/784021482c3f320c6619ed4b3bb3b41a21424fcb"
)
_SPROUT: Final = "https://huggingface.co/datasets/CARROT-LLM-Routing/SPROUT/resolve/main/data"


@dataclass(frozen=True)
class PublishedFile:
    """One file; None for what is not known."""

    name: str
    url: str | None = None
    sha256: str | None = None
    size: int | None = None


@dataclass(frozen=True)
class Published:
    """One benchmark; `reads` is the path for ``--data`` inside the folder of its files ('' for the folder itself)."""

    name: str
    title: str
    page: str
    license: str
    files: tuple[PublishedFile, ...] = field(repr=False)
    reads: str = ""


_NO_LICENSE = "none stated on its page; ask its authors before you redistribute it"

# The checksums and sizes of RouterBench are those of its Git LFS pointers on the hub.
BENCHMARKS: Final = {
    benchmark.name: benchmark
    for benchmark in (
        Published(
            "routerbench",
            "RouterBench, 0-shot: 36,497 queries, 11 models, 86 tasks",
            "https://huggingface.co/datasets/withmartian/routerbench",
            _NO_LICENSE,
            (
                PublishedFile(
                    "routerbench_0shot.pkl",
                    f"{_ROUTERBENCH}/routerbench_0shot.pkl",
                    "ba4f77f19517610a707c374e99322d7750c30fc4ae7ff5527888595a1e65d36d",
                    99_567_659,
                ),
            ),
            "routerbench_0shot.pkl",
        ),
        Published(
            "routerbench-5shot",
            "RouterBench, 5-shot: the same models, prompts with five worked examples",
            "https://huggingface.co/datasets/withmartian/routerbench",
            _NO_LICENSE,
            (
                PublishedFile(
                    "routerbench_5shot.pkl",
                    f"{_ROUTERBENCH}/routerbench_5shot.pkl",
                    "fbd7d3d16fba2759a18fa0ad44409d3e0e92ba80d03d90827eed1a6d084c9ffe",
                    171_091_324,
                ),
            ),
            "routerbench_5shot.pkl",
        ),
        Published(
            "sprout",
            "SPROUT: 44,241 queries, 13 models, 20 tasks, graded scores",
            "https://huggingface.co/datasets/CARROT-LLM-Routing/SPROUT",
            _NO_LICENSE,
            tuple(
                PublishedFile(name, f"{_SPROUT}/{name}")
                for name in (
                    "train-00000-of-00003.parquet",
                    "train-00001-of-00003.parquet",
                    "train-00002-of-00003.parquet",
                    "validation-00000-of-00001.parquet",
                    "test-00000-of-00001.parquet",
                )
            ),
        ),
        Published(
            "proxrouter",
            "ProxRouter-Data: 18,825 queries, 14 models, 12 tasks, right or wrong",
            "https://arxiv.org/abs/2510.09852",
            "unknown",
            (PublishedFile("proxrouter.parquet"),),
            "proxrouter.parquet",
        ),
    )
}


def benchmark(name: str) -> Published:
    """The benchmark of a name; an unknown name is an error that lists the known ones."""
    try:
        return BENCHMARKS[name]
    except KeyError:
        raise BadInput(f"no benchmark {name!r}: expected {', '.join(BENCHMARKS)}") from None
