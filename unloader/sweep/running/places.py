"""Where the points write: a directory of the sweep's own in each destination, removed at the end.

Nothing else in a destination is touched. A destination that holds a run is refused: somebody who
names it by mistake loses nothing.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec.structs import replace

from unloader.errors import OutputFailed, UsageError
from unloader.model import OutputOptions
from unloader.request.directory_names import has_fields
from unloader.storage.kinds import destination_kind

PREFIX = "_sweep-"
"""Of the directories; what a killed sweep has left is found by it."""

_OF_A_RUN = ("_manifest.json", "_run")


class Places:
    """The destinations of a sweep while it goes on."""

    def __init__(self, roots: Sequence[Path]) -> None:
        """Take the directories made for the sweep; none where everything is dropped."""
        self._roots = tuple(roots)
        self._number = 0

    @contextmanager
    def for_one(self, output: OutputOptions) -> Iterator[OutputOptions]:
        """Yield the output of one run, in directories of its own, and remove them."""
        if not self._roots:
            yield output
            return
        self._number += 1
        mine = [root / f"{self._number:04d}" for root in self._roots]
        first, *others = map(str, mine)
        try:
            yield replace(output, destination=first, others=tuple(others))
        finally:
            for each in mine:
                shutil.rmtree(each, ignore_errors=True)


@contextmanager
def places(destinations: tuple[str, ...], sweep_id: str) -> Iterator[Places]:
    """Make a directory for the sweep in each destination, and remove it in the end.

    Args:
        destinations: As `--to` has them.
        sweep_id: Tells the directories from those of other sweeps.

    Raises:
        UsageError: A destination is a stream, or has fields.
        OutputFailed: One holds a run, or a directory cannot be made there.
    """
    kind = destination_kind(destinations)
    if kind == "null":
        yield Places(())
        return
    check(destinations)
    made: list[Path] = []
    roots: list[Path] = []
    try:
        for place in map(Path, destinations):
            made += _make(place)
            if not place.is_dir():
                raise OutputFailed(
                    f"{place} is not a directory",
                    "give another directory with --to, or --to null:",
                )
            root = place / f"{PREFIX}{sweep_id}"
            root.mkdir()
            roots.append(root)
        yield Places(roots)
    except OSError as error:
        raise OutputFailed(
            f"the sweep cannot create a directory in {error.filename}: {error.strerror}",
            "give another directory with --to, or --to null:",
        ) from error
    finally:
        for root in roots:
            shutil.rmtree(root, ignore_errors=True)
        for path in reversed(made):
            # Only what this sweep has made, and only while nobody has put anything there.
            with suppress(OSError):
                path.rmdir()


def check(destinations: tuple[str, ...]) -> None:
    """Refuse a destination that a sweep cannot write to, or should not.

    Raises:
        UsageError: It is a stream, or has fields.
        OutputFailed: It holds a run.
    """
    if destination_kind(destinations) == "null":
        return
    if destination_kind(destinations) != "directories":
        raise UsageError(
            f"a sweep cannot write to {destinations[0]}, which accepts data only once",
            "give a directory with --to, or --to null:",
        )
    for place in destinations:
        if has_fields(place):
            raise UsageError(
                f"--to {place} has fields, but a sweep names its directories itself",
                "give the directory above the fields",
            )
        for name in _OF_A_RUN:
            if os.path.lexists(Path(place) / name):
                raise OutputFailed(
                    f"{place} holds a run ({name}), which a sweep does not change",
                    "give a directory on the same disk without a run",
                )


def _make(place: Path) -> list[Path]:
    """Make a directory and those above it; return the new ones, outermost first."""
    missing = []
    while not place.exists():
        missing.append(place)
        place = place.parent
    missing.reverse()
    for each in missing:
        each.mkdir()
    return missing
