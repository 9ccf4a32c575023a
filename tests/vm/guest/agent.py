"""Runs the scenarios of a guest, one after the other, and writes the result of each.

It has the guest to itself, as root: it switches CPUs off and on, and makes control groups. A run is a
fork of it, since an emulated CPU needs a quarter of a minute to import the command. Its workers are
separate processes, as on any machine of several nodes.
"""

from __future__ import annotations

import json
import os
import runpy
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from observer import Observer

_CPUS = Path("/sys/devices/system/cpu")
_GROUPS = Path("/sys/fs/cgroup")
_LOOK_SECONDS = 0.5
_SET_MEMPOLICY = 238
"""Of x86_64."""

_IMPORTED = ("unloader.cli.commands.run", "unloader.run.starting", "unloader.sources.sqlite.source")
"""Modules of the command, imported before the first run."""


def main(share: Path) -> None:
    """Run the scenarios of the host."""
    _delegate_controllers()
    for name in _IMPORTED:
        import_module(name)
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
    arguments = ["run", f"sqlite://{database}", "--table", "events", "--to", str(destination)]
    # Emulated on a busy machine, a worker may need more than five minutes to start.
    arguments += ["--progress", "none", "--stall-timeout", "20m", *scenario["options"]]
    started = time.monotonic()
    errors = destination.with_suffix(".err")
    with _offline(scenario["offline"]), _grouped(scenario["name"], scenario["cgroup"]) as join:
        run = _forked(arguments, errors, _prepare(join, refused=scenario["refused"]))
        observer = Observer(run)
        left = scenario["unplugged"]
        while not (ended := os.waitpid(run, os.WNOHANG))[0]:
            time.sleep(_LOOK_SECONDS)
            observer.look()
            if left and len(observer.at_work()) >= scenario["at_work"] and _goes_on(run):
                _switch(left, "0")
                left = []
    _switch(scenario["unplugged"], "1")
    return {
        "name": scenario["name"],
        "status": os.waitstatus_to_exitcode(ended[1]),
        "stderr": errors.read_text(errors="replace"),
        "seconds": time.monotonic() - started,
        "seen": observer.seen(),
        "unplugged": bool(scenario["unplugged"]) and not left,
    }


def _forked(arguments: list[str], errors: Path, prepare: Callable[[], None]) -> int:
    """Start a run, prepared as asked, that writes its errors to a file; return its process id."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        prepare()
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT), 2)
        sys.argv[:] = ["unloader", *arguments]
        runpy.run_module("unloader", run_name="__main__", alter_sys=True)
    except SystemExit as ending:
        status = int(ending.code or 0)
    finally:
        os._exit(status)


def _goes_on(run: int) -> bool:
    """Whether a run has not ended; its status can still be waited for."""
    return os.waitid(os.P_PID, run, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def _prepare(join: Callable[[], None], *, refused: bool) -> Callable[[], None]:
    """Return the function that the child runs between its fork and the run."""
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
