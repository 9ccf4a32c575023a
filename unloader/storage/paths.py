"""Places as paths, whether they are directories or prefixes in an object store."""

from __future__ import annotations

import os
from pathlib import Path, PurePath

from writers.objects.location import Location, is_location

PlacePath = Path | Location
"""Both have `/`, `name`, `parent`, and a text that `path_of` makes them of again."""


AnyPlace = str | PlacePath
"""What callers of the API may give; `path_of` makes a path of it."""


def path_of(place: AnyPlace) -> PlacePath:
    """Return a place as a path.

    Raises:
        FormatError: It is meant to be in an object store, and cannot be.
    """
    if isinstance(place, Location):
        return place
    text = os.fspath(place)
    return Location.parse(text) if is_location(text) else Path(text)


def absolute(place: str) -> str:
    """Return a place so that it is found from any directory, links as they are.

    Raises:
        FormatError: As `path_of`.
    """
    return str(Location.parse(place)) if is_location(place) else os.path.abspath(place)


def real(place: str) -> str:
    """Return what tells a place from all others and is the same however it is written.

    It is for comparing: a place in an object store is without the options that say how to get
    there.

    Raises:
        FormatError: As `path_of`.
    """
    if not is_location(place):
        return os.path.realpath(place)
    found = Location.parse(place)
    return f"{found.scheme}://{found.bucket}/{found.key}".rstrip("/")


class RealPlaces:
    """Returns the same for many places; the directory above several is looked up once.

    Use it for a moment only: links may be laid anew, and what was looked up is kept.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._above: dict[str, str] = {}

    def of(self, place: str) -> str:
        """Return what `real` returns.

        Raises:
            FormatError: As there.
        """
        above, name = os.path.split(place)
        if is_location(place) or name in ("", ".", ".."):
            return real(place)
        if above not in self._above:
            self._above[above] = os.path.realpath(above)
        found = os.path.join(self._above[above], name)
        return os.path.realpath(found) if os.path.islink(found) else found


def relative(place: str, home: str) -> str:
    """Return a place as it is seen from another one, as both are written.

    Raises:
        FormatError: As `path_of`.
    """
    if is_location(place) and is_location(home):
        place, home = real(place), real(home)
    return os.path.relpath(place, home)


def comparable(place: str) -> PurePath:
    """Return the same as a path, of which one can be seen to lie in another."""
    return PurePath(real(place))
