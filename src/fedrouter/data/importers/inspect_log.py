"""Inspect: logs as `.eval` (a ZIP archive) or `.json`, with scores and the tokens of each sample.

Python's zipfile cannot read Zstandard, which Inspect compresses with; pyarrow, which writes our logs, can.
"""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedrouter.data.importers.row import ImportedRow, entries, mapping, number, prompt_text
from fedrouter.errors import BadInput

ZSTANDARD = 93
MAX_MEMBER = 1 << 30
"""Bytes of one sample, unpacked."""
GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
"""Correct, partly correct, incorrect, no answer."""


def rows(path: Path, score: str | None = None) -> Iterator[ImportedRow]:
    """Evaluations of one log; ``score`` is a scorer, by default a sample's first."""
    header, samples = _opened(path)
    spec = mapping(header.get("eval"))
    logged = spec.get("model")
    if not isinstance(logged, str):
        raise BadInput(f"{path}: not a log of Inspect: no eval.model")
    for where, sample in samples:
        usage = mapping(mapping(sample.get("model_usage")).get(logged))
        yield ImportedRow(
            where,
            prompt_text(sample.get("input")),
            logged,
            _score(mapping(sample.get("scores")), score),
            number(usage.get("total_cost")),
            _input_tokens(usage),
            number(usage.get("output_tokens")),
            str(spec.get("task", "")) or None,
        )


def _input_tokens(usage: Mapping[str, Any]) -> float | None:
    """Inspect counts tokens from and for the prompt cache apart from the others."""
    parts = [number(usage.get(f"input_tokens{kind}")) for kind in ("", "_cache_read", "_cache_write")]
    return None if parts[0] is None else sum(part or 0.0 for part in parts)


def _score(scores: Mapping[str, Any], wanted: str | None) -> float | None:
    found = mapping(scores.get(wanted) if wanted else next(iter(scores.values()), None)).get("value")
    return GRADES[found] if isinstance(found, str) and found in GRADES else number(found)


def _opened(path: Path) -> tuple[Mapping[str, Any], Iterator[tuple[str, Mapping[str, Any]]]]:
    """The header of a log and its samples."""
    if not path.is_file():
        raise BadInput(f"{path}: no such file")
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            members = {member.filename: member for member in archive.infolist()}
        if "header.json" not in members:
            raise BadInput(f"{path}: the log has no header: the evaluation did not finish")
        inside = [member for name, member in members.items() if name.startswith("samples/")]
        return _member(path, members["header.json"]), ((f"{path}: {m.filename}", _member(path, m)) for m in inside)
    document = mapping(next(entries(path), ("", {}))[1])
    listed = document.get("samples")
    samples = listed if isinstance(listed, list) else []
    return document, ((f"{path}: sample {place}", mapping(sample)) for place, sample in enumerate(samples, 1))


def _member(path: Path, member: zipfile.ZipInfo) -> Mapping[str, Any]:
    if member.file_size > MAX_MEMBER:
        raise BadInput(f"{path}: {member.filename}: larger than {MAX_MEMBER} bytes")
    try:
        if member.compress_type != ZSTANDARD:
            with zipfile.ZipFile(path) as archive:
                return mapping(json.loads(archive.read(member)))
        import pyarrow as pa

        with path.open("rb") as file:
            file.seek(member.header_offset)
            name, extra = struct.unpack("<HH", file.read(30)[26:])
            file.seek(name + extra, 1)
            packed = file.read(member.compress_size)
        unpacked = pa.decompress(packed, decompressed_size=member.file_size, codec="zstd", asbytes=True)
        return mapping(json.loads(unpacked))
    except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError, struct.error):
        raise BadInput(f"{path}: {member.filename}: damaged") from None
