"""The installed command, run as a user runs it."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
from schemas.json_schema import check, check_at, check_call

from processes import program, warm
from processes.program import LONGEST_SECONDS, Program

UNLOADER = (sys.executable, "-m", "unloader")
PATIENCE_SECONDS = 180
"""Limit of waits for certain events; a busy machine starts a process in ten."""
_LOOK_SECONDS = 0.02


def ended(
    *arguments: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, without standard input, and return its texts.

    `env` are all its variables, by default ours.
    """
    done = ended_bytes(*arguments, env=env, cwd=cwd)
    texts = [io.TextIOWrapper(io.BytesIO(each)).read() for each in (done.stdout, done.stderr)]
    check_call(arguments, env or {}, texts[1])
    return subprocess.CompletedProcess(done.args, done.returncode, *texts)


def ended_bytes(
    *arguments: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run the command and return bytes, by a fork of a warm program if the result is the same."""
    env = os.environ if env is None else env
    if not warm.unsuited(env):
        return warm.run(arguments, env=env, cwd=cwd, timeout=LONGEST_SECONDS)
    return subprocess.run(
        [*UNLOADER, *arguments],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=LONGEST_SECONDS,
    )


def run(*arguments: str, status: int = 0, env: dict[str, str] | None = None) -> str:
    """Run a command, check its exit status, return its standard output; stderr on a mismatch."""
    done = ended(*arguments, env={**os.environ, **(env or {})})
    assert done.returncode == status, f"exit {done.returncode}: {done.stderr}"
    if status == 0:
        check_at(arguments)
    return done.stdout


def error_of(*arguments: str, status: int, env: dict[str, str] | None = None) -> str:
    """Run a command that must fail; return the one line it gives as the reason."""
    done = ended(*arguments, env={**os.environ, **(env or {})})
    assert done.returncode == status, f"exit {done.returncode}: {done.stderr}"
    errors = [line for line in done.stderr.splitlines() if line.startswith("unloader: error:")]
    assert len(errors) == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert "Next: " in errors[0], errors[0]
    return errors[0]


def manifest_of(destination: Path) -> dict[str, Any]:
    """Return the manifest of a finished run."""
    found: dict[str, Any] = json.loads((destination / "_manifest.json").read_text())
    check(found)
    return found


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Wait until something holds."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < end, f"never came: {what}"
        time.sleep(_LOOK_SECONDS)


class Running:
    """A command in the background, for tests that disturb it."""

    def __init__(self, *arguments: str, env: dict[str, str] | None = None) -> None:
        """Start it in its own process group, as a shell does."""
        self.process: Program[str] | warm.Background = Program(
            [*UNLOADER, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, **(env or {})},
        )

    def workers(self) -> list[psutil.Process]:
        """Return its worker processes."""
        return [each for each in program.below(self.process.pid) if program.reads_units(each)]

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until something holds; fail if the command ends first."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            if self.process.poll() is not None:
                # It may have come just before the end.
                assert condition(), self.process.communicate()
                return
            if time.monotonic() > end:
                self.process.kill()
                raise AssertionError(f"never came: {what}", self.process.communicate())
            time.sleep(_LOOK_SECONDS)

    def log_until(self, words: str) -> str:
        """Return its log up to the line with these words."""
        assert self.process.stderr is not None
        seen = ""
        for line in self.process.stderr:
            seen += line
            if words in line:
                return seen
        raise AssertionError(f"never came: {words}: {seen}")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the command alone."""
        self.process.send_signal(number)

    def finish(self) -> tuple[int, str, str]:
        """Wait for the end; return exit status, stdout and stderr."""
        out, err = self.process.communicate()
        return self.process.returncode, out, err


class Forked(Running):
    """A running command that is a fork of a warm program, which has imported its modules.

    It is for tests that look neither at its start nor at the words and variables of its process.
    """

    def __init__(self, *arguments: str, env: dict[str, str] | None = None) -> None:
        """Start it in its own process group, or as a new process if its variables need that."""
        variables = {**os.environ, **(env or {})}
        if warm.unsuited(variables):
            super().__init__(*arguments, env=env)
        else:
            self.process = warm.Background(arguments, variables)


def final_names(destination: Path) -> list[str]:
    """Return the files under final names: all except the run's folder."""
    if not destination.exists():
        return []
    return sorted(entry.name for entry in destination.iterdir() if entry.name != "_run")
