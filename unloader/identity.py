"""What has been made of objects, kept for whoever makes it of the very same objects again.

The tables of a run share their options, settings and columns: the objects, not only what is equal.
To ask which objects they are takes a part of what it takes to hash all that is in them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class ByIdentity(Generic[T]):
    """Keeps what was made of some objects, and the objects with it."""

    def __init__(self, most: int = 256) -> None:
        """Begin with nothing.

        Args:
            most: How much is kept; all of it is given up then, and made anew.
        """
        self._most = most
        self._known: dict[tuple[int, ...], tuple[tuple[object, ...], T]] = {}

    def of(self, objects: tuple[object, ...], make: Callable[[], T]) -> T:
        """Return what was made of these objects, which do not change; it is made now if need be."""
        key = tuple(map(id, objects))
        known = self._known.get(key)
        if known is not None:
            return known[1]
        made = make()
        if len(self._known) >= self._most:
            self._known.clear()
        # The objects with it: as long as they are there no others have their numbers.
        self._known[key] = objects, made
        return made
