"""Publishes in child processes that are killed, or refused a system call, at every possible moment.

This is a separate program, started with the library of `killing_calls.c`. It prints one line of JSON
for each moment. It forks, so that a moment costs milliseconds.

    python publications/broken_publications.py DIRECTORY SETTING...

Settings: `overwrite`, `two` directories, `foreign` file in the way of an exchange, `noexchange`,
`many`: one file in a new directory of a run that has many, `fail` instead of being killed,
`folders` of large objects in place of some files.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from publications.staged_runs import as_bytes, manifest_of, taken
from unloader.storage.directories.directory_publishing import TWIN
from unloader.storage.directories.directory_recovery import complete
from unloader.storage.storage_protocol import RUN, Move
from writers.files.publish import INDEX

OLD = {"a.csv": 0, "b.csv": 1, "c.csv": 0, "d.csv": 1}
NEW = {"a.csv": 0, "b.csv": 1, "e.csv": 1, "f.csv": 0}
FOLDERS = ("a.csv", "b.csv", "f.csv")
FOREIGN = "mine.txt"
UNREACHED = 77
"""Status of a child whose publication was over before the call that was to fail."""


def do_run(
    paths: list[Path],
    files: dict[str, int],
    run: str,
    before: Callable[[], None],
    *,
    many: bool = False,
    folders: bool = False,
) -> None:
    """Do a whole run that leaves these files, each with the run's name as text."""
    files = {name: number % len(paths) for name, number in files.items()}
    listed = {
        f"{name}/{INDEX}" if folders and name in FOLDERS else name: files[name] for name in files
    }
    with taken(paths, overwrite=True, run_id=run, home="home" if many else "") as directories:
        moves = []
        for name, number in files.items():
            is_folder = folders and name in FOLDERS
            path = directories.all[number].staged / f"{name}{'.lob0' if is_folder else ''}.part"
            if is_folder:
                path.mkdir()
                (path / run).write_text("value")
            (path / INDEX if is_folder else path).write_text(f"{run}\n")
            moves.append(Move(number, path.name, name))
        before()
        directories.commit(
            moves, as_bytes(manifest_of(listed, run, paths if len(paths) > 1 else ()))
        )


def seen(paths: list[Path]) -> list[list[str]]:
    """Return for each directory what a reader sees of the runs there: names and texts."""
    return [
        sorted(
            f"{entry.name}={_text(entry)}"
            for entry in (path.iterdir() if path.exists() else ())
            if entry.name not in (RUN, FOREIGN)
        )
        for path in paths
    ]


def _text(path: Path) -> str:
    if path.is_dir():
        text = (path / INDEX).read_text()
        assert sorted(each.name for each in path.iterdir()) == sorted((INDEX, text.strip()))
        return text.strip()
    text = path.read_text()
    return str(json.loads(text)["run_id"]) if path.suffix == ".json" else text.strip()


def broken(root: Path, settings: set[str], moment: int) -> dict[str, Any]:
    """Interrupt one publication at a moment; return the state after each step."""
    paths = [root / "x" / "out", root / "y" / "out"][: 2 if "two" in settings else 1]
    many, folders = "many" in settings, "folders" in settings
    for path in paths:
        (path.parent if many else path).mkdir(parents=True)
        if "foreign" in settings:
            (path / FOREIGN).write_text("mine")
    if "overwrite" in settings:
        do_run(paths, OLD, "old", lambda: None, folders=folders)
    library = ctypes.CDLL(None)

    def break_off() -> None:
        if "noexchange" in settings:
            library.fail_exchange()
        if "fail" in settings:
            library.fail_at(ctypes.c_long(moment), errno.EIO)
        else:
            library.kill_at(ctypes.c_long(moment))

    child = os.fork()
    if not child:
        try:
            files = {"a.csv": 0} if many else NEW
            do_run(paths, files, "new", break_off, many=many, folders=folders)
            os._exit(UNREACHED if "fail" in settings and not library.has_failed() else 0)
        except Exception as error:
            os._exit(6 if "Next: " in str(error) else 1)
    _, status = os.waitpid(child, 0)
    after = seen(paths)
    told = [text for run in complete(paths[0]) for text in run.messages]
    completed = seen(paths)
    hidden = [path for path in root.rglob("*") if path.name == RUN or TWIN in path.name]
    do_run(paths, {"z.csv": 0}, "last", lambda: None)
    return {
        "moment": moment,
        "status": os.waitstatus_to_exitcode(status),
        "after": after,
        "told": told,
        "completed": completed,
        "hidden": sorted(str(path.relative_to(root)) for path in hidden),
        "last": seen(paths),
        "left": sorted(str(path.relative_to(root)) for path in root.rglob("*")),
    }


def main() -> None:
    """Go through all moments until one is beyond the end."""
    root, settings = Path(sys.argv[1]), set(sys.argv[2:])
    for moment in range(1, 1000):
        found = broken(root / str(moment), settings, moment)
        print(json.dumps(found), flush=True)
        shutil.rmtree(root / str(moment))
        if found["status"] == (UNREACHED if "fail" in settings else 0):
            return


if __name__ == "__main__":
    main()
