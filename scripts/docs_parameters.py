"""Reads the project's short form of numpydoc for the API reference: `name : meaning` on one line.

In numpydoc the text after the colon is a type. Types are in the signatures here, so the text is the meaning.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

SECTION = re.compile(r"(?P<head>^Parameters\n-+\n)(?P<body>.*?)(?=^\w+\n-+$|\Z)", re.DOTALL | re.MULTILINE)


class MeaningsNotTypes(griffe.Extension):
    """Moves the text after the colon to a line of its own, where numpydoc expects the description."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = SECTION.sub(rewritten, obj.docstring.value)


def rewritten(section: re.Match[str]) -> str:
    return section["head"] + re.sub(r"^(\w[\w, ]*) : (.*)$", r"\1\n    \2", section["body"], flags=re.MULTILINE)
