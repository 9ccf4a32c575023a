"""What the texts of `--to` mean: directories, object stores, streams, or nowhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Literal

from unloader.lakehouse.lake_formats import lake_kind
from writers.objects.location import is_location

STANDARD_OUTPUT = "-"
PIPE = "pipe:"
NULL = "null:"
NULL_ROWS = "null:rows"

Kind = Literal["directories", "objects", "table", "stdout", "pipe", "null"]
"""objects: prefixes in object stores; table: a lakehouse table, whose files are in one of the first
two; pipe: one named pipe for all work units; null: all output is dropped."""


KEPT: tuple[Kind, ...] = ("directories", "objects", "table")
"""The kinds of places that keep what is written there."""


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
    """Return whether what is written there stays there: in directories, or in an object store."""
    return destination_kind(destinations) in KEPT


def is_one_stream(kind: Kind) -> bool:
    """Return whether all work units go one after the other through one stream."""
    return kind in ("stdout", "pipe")


def overlapping(paths: Sequence[PurePath]) -> tuple[int, int] | None:
    """Return the places of two directories of which one is, or lies in, the other; None if none.

    Args:
        paths: As they are written, or resolved. A relative and an absolute one are not compared,
            and nothing is looked up: `x/..` may be elsewhere if `x` is a link.
    """
    seen = [path.parts for path in paths]
    for later, parts in enumerate(seen):
        for earlier, other in enumerate(seen[:later]):
            shared = min(len(parts), len(other))
            if parts[:shared] == other[:shared] and paths[later].root == paths[earlier].root:
                return earlier, later
    return None


def two_are_one(first: str, second: str, *, same: bool) -> str:
    """Return what is wrong with two overlapping directories."""
    if same:
        return f"--to names the same directory twice: {first} and {second}"
    inner, outer = sorted((first, second), key=lambda path: len(PurePath(path).parts), reverse=True)
    return f"--to names two directories, and one is inside the other: {inner} in {outer}"


def pipe_template(destination: str) -> tuple[Path, str]:
    """Return the directory of `pipe:DIRECTORY/NAME`, and the template of the name."""
    folder, _, name = destination.removeprefix(PIPE).rpartition("/")
    absolute = destination.removeprefix(PIPE).startswith("/")
    return Path(folder or ("/" if absolute else ".")), name
