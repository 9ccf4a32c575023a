"""A run without a directory around its tables: it has one table, or its output is dropped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class NoHome:
    """Takes the records that such a directory would have, and keeps none."""

    def keep(self, name: str, data: bytes) -> None:
        """Do nothing."""

    def marks(self) -> tuple[str, ...]:
        """Return nothing that would be gone with the run."""
        return ()

    def commit(
        self,
        files: tuple[Any, ...],
        manifest: bytes,
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """Do what follows a run."""
        then()

    def abandon(self, manifest: bytes | None) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""
