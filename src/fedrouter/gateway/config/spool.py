"""Section `spool`: where rows wait while the store cannot be written."""

from __future__ import annotations

from pydantic import Field

from fedrouter.gateway.config.fields import MEGABYTE, Positive, Section, Text


class SpoolConfig(Section):
    """Where rows wait while the store is locked, full or unreachable."""

    folder: Text = Field(
        default=".",
        description="Folder for a store in PostgreSQL, relative to this file; SQLite has the spool beside its file.",
    )
    megabytes: Positive = Field(
        default=16.0,
        le=1024,
        description="Space that is set aside on disk, in MiB; once it is used up, requests get 503.",
    )

    @property
    def limit(self) -> int:
        """In bytes."""
        return int(self.megabytes * MEGABYTE)
