"""The events that an executor has yet to hand to the engine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from unloader.engine.executor import ExecutorEvent, Note
from unloader.placement.evidence import without_numbers


class Untold(list[ExecutorEvent]):
    """Events in the order in which they are handed over."""

    def __init__(self, events: Iterable[ExecutorEvent] = (), *, noted: Iterable[str] = ()) -> None:
        """Begin with some events.

        Args:
            events: To hand over first.
            noted: Lines that the user has read already.
        """
        super().__init__(events)
        self._noted = {without_numbers(text) for text in noted}

    def note(self, text: str) -> None:
        """Add a line for the user."""
        self.append(Note(text=text))

    def note_once(self, text: str | None) -> None:
        """Add a line, if there is one and none was the same but for its numbers."""
        if text and without_numbers(text) not in self._noted:
            self._noted.add(without_numbers(text))
            self.note(text)

    def taken(self) -> Sequence[ExecutorEvent]:
        """Return all events, which are handed over by that."""
        found = tuple(self)
        self.clear()
        return found
