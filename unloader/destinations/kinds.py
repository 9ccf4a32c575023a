"""What the texts of `--to` mean: directories, standard output, or named pipes."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

STANDARD_OUTPUT = "-"
PIPE = "pipe:"
UNIT_FIELD = "{unit}"

Kind = Literal["directories", "stdout", "pipe", "pipes"]
"""pipe: one named pipe for all work units; pipes: one for each."""


def kind_of(destinations: tuple[str, ...]) -> Kind:
    """Return the kind of a destination; `./-` is a directory named `-`."""
    first = destinations[0] if destinations else ""
    if first == STANDARD_OUTPUT:
        return "stdout"
    if first.startswith(PIPE):
        return "pipes" if UNIT_FIELD in first else "pipe"
    return "directories"


def is_one_stream(kind: Kind) -> bool:
    """Return whether all work units go one after the other through one stream."""
    return kind in ("stdout", "pipe")


def pipe_template(destination: str) -> tuple[Path, str]:
    """Return the directory of `pipe:DIRECTORY/NAME`, and the template of the name."""
    folder, _, name = destination.removeprefix(PIPE).rpartition("/")
    absolute = destination.removeprefix(PIPE).startswith("/")
    return Path(folder or ("/" if absolute else ".")), name
