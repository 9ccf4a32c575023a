"""What every display of progress can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from unloader.events import Event


class Display(Protocol):
    """Shows the events of a run on stderr."""

    def __call__(self, event: Event) -> None:
        """Take one event."""

    def stopping(self, text: str) -> None:
        """Show that a signal asked to stop; safe in a signal handler."""

    def close(self, finished: bool) -> None:
        """End the display; `finished` tells success from failure."""
