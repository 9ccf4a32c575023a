"""Runs into directories, driven without a database: staged files, and finished runs of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from unloader.manifest.read import read_index
from unloader.storage.directories.run_directories import RunDirectories
from unloader.storage.model import Claim, Move

OPTIONS: dict[str, Any] = {
    "format": "csv",
    "compression": {"codec": "none", "level": None},
    "dialect": {"kind": "text", "delimiter": ","},
}
"""What a manifest's options cannot do without."""


def taken(
    paths: Sequence[Path], *, overwrite: bool, run_id: str = "", **rights: Any
) -> RunDirectories:
    """Take directories for a run; `rights` are further fields of its claim."""
    return RunDirectories(
        Claim(
            **rights,
            places=tuple(map(str, paths)),
            run_id=run_id or os.urandom(6).hex(),
            overwrite=overwrite,
            read_index=read_index,
        )
    )


def as_bytes(document: Mapping[str, Any]) -> bytes:
    """Return a manifest or a line of the journal as a run writes it."""
    return msgspec.json.encode(document) + b"\n"


def manifest_of(names: Iterable[str], run: str = "first") -> dict[str, Any]:
    """Return a manifest of one unit with files of these names."""
    files = [{"path": name, "rows": 1, "bytes": 4, "checksum": "xxh3:0"} for name in names]
    units = [{"id": "1", "files": files}]
    totals = {"rows": len(files), "bytes": 4 * len(files), "files": len(files)}
    rest = {"table": None, "query": "q", "snapshot": None, "options": OPTIONS, "totals": totals}
    return {"format_version": 1, "run_id": run, "units": units, **rest}


def stage(directory: RunDirectories, *names: str, content: str = "new\n") -> list[Move]:
    """Stage a file for each final name; return the moves."""
    for name in names:
        (directory.first.staged / f"{name}.part").write_text(content)
    return [Move(0, f"{name}.part", name) for name in names]


def finish(path: Path, *names: str, run: str = "first", overwrite: bool = False) -> None:
    """Do a whole run that leaves these files."""
    with taken([path], overwrite=overwrite) as directory:
        moves = stage(directory, *names, content=f"{run}\n")
        directory.commit(moves, as_bytes(manifest_of(names, run)))


def content_of(path: Path) -> dict[str, str]:
    """Return every file under a directory with its text."""
    return {
        str(file.relative_to(path)): file.read_text() for file in path.rglob("*") if file.is_file()
    }
