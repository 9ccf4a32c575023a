"""Libraries that are loaded before a process and make its system calls fail, wait, or kill it."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import pytest

from processes import command


def build(source: Path, directory: Path) -> Path:
    """Compile a library into a directory; skip the test without a C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip(f"there is no C compiler (cc) to build {source.name}")
    path = directory / source.with_suffix(".so").name
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(path), str(source), "-ldl"]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if built.returncode:
        pytest.skip(f"{compiler} does not build {source.name} here: {built.stderr[-300:]}")
    return path


FAULTY_CALLS = Path(__file__).with_name("faulty_calls.c")


@dataclass(frozen=True, kw_only=True)
class FaultyCalls:
    """The compiled library."""

    path: Path

    @classmethod
    def build(cls, directory: Path) -> FaultyCalls:
        """Compile it into a directory; skip the test without a C compiler."""
        return cls(path=build(FAULTY_CALLS, directory))

    def environment(
        self,
        call: str,
        what: str | int,
        *,
        files: str = "/_run/staged/",
        after: int = 0,
        more: Mapping[str, object] | None = None,
    ) -> dict[str, str]:
        """Return the variables under which a process meets the fault.

        Args:
            call: write, fsync, sync_file_range, create, rename, mkdir, unlink, statvfs or direct;
                any of the first seven.
            what: An errno, or short, zero, slow, interrupted, refused, killed, noted, or while: and
                a file. Of create: hold: and a file. Of statvfs: a file that holds the number of bytes that
                are free.
            files: Part of the path of the files that are meant: by default those with rows.
            after: Bytes (of write) or calls that go well first.
            more: `who`, `times` and `log`; see `faulty_calls.c`.
        """
        return {
            "LD_PRELOAD": str(self.path),
            "FAULT_PATH": files,
            "FAULT_CALL": call,
            "FAULT_DO": str(what),
            "FAULT_AFTER": str(after),
            **{f"FAULT_{name.upper()}": str(value) for name, value in (more or {}).items()},
        }


def killing_library(directory: Path) -> Path:
    """Compile it into a directory; skip the test without a C compiler."""
    return build(Path(__file__).with_name("killing_calls.c"), directory)


OF_THE_RUN = (
    *("run_id", "settings", "totals", "workers", "nodes", "warnings", "not_measured"),
    *("failed_attempts", "failed_attempts_left_out", "samples", "parallelism_steps"),
)
"""Parts of a manifest in which two equal runs differ: names, times, and where workers were."""
OF_THE_UNIT = (
    *("seat", "worker", "stages", "started_s", "seconds", "attempts", "cpu_seconds"),
    "peak_rss_bytes",
)


def journal_of(dest: Path) -> list[dict[str, Any]]:
    """Return the whole lines of a run's journal, which one of many tables has in its lock."""
    for name in ("journal.jsonl", "lock"):
        try:
            lines = (dest / "_run" / name).read_bytes().split(b"\n")[:-1]
        except FileNotFoundError:
            continue
        return [line for line in map(json.loads, lines) if "event" in line]
    return []


def staged_units(dest: Path) -> dict[str, dict[str, Any]]:
    """Return the journal's lines on finished units, by unit."""
    return {line["unit"]: line for line in journal_of(dest) if line["event"] == "staged"}


@cache
def _library() -> FaultyCalls | None:
    directory = Path(tempfile.mkdtemp(prefix="unloader-test-"))
    atexit.register(shutil.rmtree, directory)
    try:
        return FaultyCalls.build(directory)
    except pytest.skip.Exception:
        return None


def held_behind(units: int, file: Path | None = None, *, files: int = 1) -> dict[str, str]:
    """Return variables under which a run of one worker stops once units are staged.

    It may stage one more unit; without a C compiler it continues.

    Args:
        units: The number of units.
        file: It continues when this file is gone. None: it never does.
        files: At least as many as a unit has.
    """
    library = _library()
    if library is None:
        return {}
    # A worker has its next unit before the last one is on record.
    before = (units + 1) * files
    what = f"hold:{file or library.path}"
    # Staged files of one table of many lie in `_run` itself. A worker makes only these files there.
    return library.environment("create", what, files="/_run/", after=before, more={"who": "worker"})


def kill_after(
    units: int, dest: Path, *arguments: str, env: dict[str, str] | None = None, files: int = 1
) -> dict[str, dict[str, Any]]:
    """Start a command and kill all its processes once `count` units are staged; return these units.

    With no units it is killed once the run has recorded its plan. It has one worker, and its units
    at most `files` files.
    """
    variables = {**held_behind(units, files=files), **(env or {})}
    before = command.final_names(dest)
    running = command.Running(*arguments, "--progress", "none", env=variables)
    try:
        if units:
            running.wait_until(lambda: len(staged_units(dest)) >= units, f"{units} finished units")
        else:
            running.wait_until((dest / "_run" / "run.json").exists, "the record of the run")
    finally:
        workers = running.workers()
        with suppress(ProcessLookupError):
            os.killpg(running.process.pid, signal.SIGKILL)
        running.process.communicate()
    # A worker that has lost its parent ends soon, and has the source open until then.
    psutil.wait_procs(workers, timeout=command.PATIENCE_SECONDS)
    assert command.final_names(dest) == before
    return staged_units(dest)


def comparable(dest: Path) -> dict[str, Any]:
    """Return what two runs that wrote the same must have alike: their files and manifests."""
    manifest: dict[str, Any] = {**command.manifest_of(dest)}
    sums = {key: manifest["totals"][key] for key in ("rows", "bytes", "files")}
    for key in (*OF_THE_RUN, "directories", "digest"):
        manifest.pop(key, None)
    manifest["snapshot"] = without(manifest["snapshot"], "taken_at")
    manifest["options"] = without(manifest["options"], "to")
    manifest["units"] = [without(unit, *OF_THE_UNIT) for unit in manifest["units"]]
    files = {
        path.name: path.read_bytes() for path in dest.iterdir() if not path.name.startswith("_")
    }
    return {**manifest, "totals": sums, "files": files}


def without(document: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """Return a document without some of its keys."""
    return {key: value for key, value in document.items() if key not in keys}
