"""The texts of `--to`: their kinds, and places as paths, in directories and in object stores."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Literal

from unloader.lakehouse.lake_formats import lake_kind
from writers.objects.location import Location, is_location

STANDARD_OUTPUT = "-"
PIPE = "pipe:"
NULL = "null:"
NULL_ROWS = "null:rows"

Kind = Literal["directories", "objects", "table", "stdout", "pipe", "null"]
"""objects: prefixes in object stores; table: a lakehouse table, whose files are in one of the first
two; pipe: one named pipe for all work units; null: all output is dropped."""

KEPT: tuple[Kind, ...] = ("directories", "objects", "table")
"""The kinds of places that keep the output."""


def destination_kind(destinations: tuple[str, ...]) -> Kind:
    """Return the kind of a destination; `./-` is a directory named `-`."""
    first = destinations[0] if destinations else ""
    if first == STANDARD_OUTPUT:
        return "stdout"
    if first.startswith(PIPE):
        return "pipe"
    if is_location(first):
        return "objects"
    if lake_kind(first) is not None:
        return "table"
    return "null" if first.startswith(NULL) else "directories"


def is_kept(destinations: tuple[str, ...]) -> bool:
    return destination_kind(destinations) in KEPT


def is_one_stream(kind: Kind) -> bool:
    """Return whether all work units go one after the other through one stream."""
    return kind in ("stdout", "pipe")


def pipe_template(destination: str) -> tuple[Path, str]:
    """Return the directory of `pipe:DIRECTORY/NAME`, and the template of the name."""
    folder, _, name = destination.removeprefix(PIPE).rpartition("/")
    absolute = destination.removeprefix(PIPE).startswith("/")
    return Path(folder or ("/" if absolute else ".")), name


def overlapping(paths: Sequence[PurePath]) -> tuple[int, int] | None:
    """Return the numbers of two directories that are the same or nested; else None.

    A relative and an absolute path are not compared, and nothing is looked up: `x/..` may be
    elsewhere if `x` is a link.
    """
    seen = [path.parts for path in paths]
    for later, parts in enumerate(seen):
        for earlier, other in enumerate(seen[:later]):
            shared = min(len(parts), len(other))
            if parts[:shared] == other[:shared] and paths[later].root == paths[earlier].root:
                return earlier, later
    return None


def two_are_one(first: str, second: str, *, same: bool) -> str:
    if same:
        return f"--to names the same directory twice: {first} and {second}"
    inner, outer = sorted((first, second), key=lambda path: len(PurePath(path).parts), reverse=True)
    return f"--to names two directories, and one is inside the other: {inner} in {outer}"


PlacePath = Path | Location
"""Both have `/`, `name`, `parent`, and a text that `path_of` turns back into them."""

AnyPlace = str | PlacePath
"""The places that callers of the API may give; see `path_of`."""


def path_of(place: AnyPlace) -> PlacePath:
    if isinstance(place, Location):
        return place
    text = os.fspath(place)
    return Location.parse(text) if is_location(text) else Path(text)


def absolute(place: str) -> str:
    """Return a place as it is found from any directory; links stay as they are."""
    return str(Location.parse(place)) if is_location(place) else os.path.abspath(place)


def real(place: str) -> str:
    """Return a text that is the same however a place is written, for comparisons.

    A place in an object store is without the options for reaching the store.
    """
    if not is_location(place):
        return os.path.realpath(place)
    found = Location.parse(place)
    return f"{found.scheme}://{found.bucket}/{found.key}".rstrip("/")


def relative(place: str, home: str) -> str:
    if is_location(place) and is_location(home):
        place, home = real(place), real(home)
    return os.path.relpath(place, home)


def comparable(place: str) -> PurePath:
    """Return `real(place)` as a path, for comparisons of its parts."""
    return PurePath(real(place))
