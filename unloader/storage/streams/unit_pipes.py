"""Named pipes, one a place, that workers write to themselves.

They are `RunPlaces` and no `RunStorage`; see `unloader.storage.base`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from unloader.storage.model import Move, Place, Staging
from unloader.storage.streams.fifo import Fifos


class UnitPipes:
    """Several named pipes, taken by one run."""

    def __init__(self, names: Sequence[str]) -> None:
        """Begin with none of them made."""
        self.places = tuple(Place(name=name, address=name) for name in names)
        self._fifos = Fifos()

    def provide(self) -> None:
        """Make the pipes that are not there.

        Raises:
            OutputFailed: Something else is there, or one cannot be made.
        """
        for place in self.places:
            self._fifos.provide(Path(place.name))

    def staging(self, place: int) -> Staging:
        """Return the pipe itself."""
        name = self.places[place].name
        return Staging(label=name, directory=str(Path(name).parent), stream=name)

    def check(self) -> None:
        """Do nothing: workers find out themselves."""

    def commit(
        self,
        moves: Sequence[Move],
        manifest: bytes,
        then: Callable[[], None] = lambda: None,
    ) -> tuple[str, ...]:
        """Do nothing more: all has been read, or is in the hands of the system."""
        then()
        return ()

    def abandon(self, manifest: bytes | None) -> None:
        """Do nothing: what has left cannot be taken back."""

    def close(self) -> None:
        """Remove the pipes made here."""
        self._fifos.close()
