"""Runs the scenarios of a guest, one after the other, and writes down what came of each.

It has the guest to itself, as root: it switches CPUs off and on, and makes control groups.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from observer import Observer

_CPUS = Path("/sys/devices/system/cpu")
_GROUPS = Path("/sys/fs/cgroup")
_LOOK_SECONDS = 0.5
_SET_MEMPOLICY = 238
"""Of x86_64."""


def main(share: Path) -> None:
    """Run what the host has written down."""
    _delegate_controllers()
    work = share.parent / "work"
    work.mkdir()
    database = Path(shutil.copy(share / "events.db", work))
    for scenario in json.loads((share / "scenarios.json").read_text()):
        print(f"running {scenario['name']}", flush=True)
        told = _run(scenario, database, work / scenario["name"])
        if (work / scenario["name"]).exists():
            shutil.copytree(work / scenario["name"], share / scenario["name"])
        with (share / "results.jsonl").open("a") as results:
            results.write(json.dumps({**told, "folder": scenario["name"]}) + "\n")


def _run(scenario: dict[str, Any], database: Path, destination: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "unloader", "run", f"sqlite://{database}", "--table", "events"]
    command += ["--to", str(destination), "--progress", "none", *scenario["options"]]
    started = time.monotonic()
    errors = destination.with_suffix(".err")
    with (
        _offline(scenario["offline"]),
        _grouped(scenario["name"], scenario["cgroup"]) as join,
        errors.open("wb") as stderr,
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            preexec_fn=_prepare(join, refused=scenario["refused"]),
        ) as process,
    ):
        observer = Observer(process.pid)
        left = scenario["unplugged"]
        while process.poll() is None:
            time.sleep(_LOOK_SECONDS)
            observer.look()
            if left and len(observer.at_work()) >= scenario["at_work"] and process.poll() is None:
                _switch(left, "0")
                left = []
    _switch(scenario["unplugged"], "1")
    return {
        "name": scenario["name"],
        "status": process.returncode,
        "stderr": errors.read_text(errors="replace"),
        "seconds": time.monotonic() - started,
        "seen": observer.seen(),
        "unplugged": bool(scenario["unplugged"]) and not left,
    }


def _prepare(join: Callable[[], None], *, refused: bool) -> Callable[[], None]:
    """Return what the child does between its fork and the run."""
    if not refused:
        return join
    from refused_policy import deny

    def prepare() -> None:
        join()
        deny(_SET_MEMPOLICY)

    return prepare


@contextmanager
def _offline(cpus: list[int]) -> Iterator[None]:
    _switch(cpus, "0")
    yield
    _switch(cpus, "1")


def _switch(cpus: list[int], state: str) -> None:
    for cpu in cpus:
        (_CPUS / f"cpu{cpu}" / "online").write_text(state)


def _delegate_controllers() -> None:
    (_GROUPS / "cgroup.subtree_control").write_text("+cpuset +cpu")


@contextmanager
def _grouped(name: str, files: dict[str, str]) -> Iterator[Callable[[], None]]:
    """Make a control group; yields what a process calls to be in it."""
    if not files:
        yield lambda: None
        return
    folder = _GROUPS / name
    folder.mkdir()
    for file, text in files.items():
        (folder / file).write_text(text)

    def join() -> None:
        (folder / "cgroup.procs").write_text(str(os.getpid()))

    yield join
    folder.rmdir()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
