"""The home of a run whose output is dropped: nothing is kept, and nobody can look at it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class NoHome:
    """Takes the records of a run over several tables, and keeps none."""

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
