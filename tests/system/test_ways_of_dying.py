"""However a run dies, the same is left: nothing half-published, and nothing in the next one's way."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb
import pytest
from amounts import EVERYTHING
from long_tests import OTHER_ROUTES, also
from processes import breaking, command
from processes.breaking import staged_units
from processes.program import Program

import unloader
from unloader.cli.signals import STOPPING
from unloader.resolve.resolved import ResolvedTable
from writers.model import Compression

SIGNALS = "signals"
"""The kind of the long tests: each signal at each moment."""

ROWS = 20000


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A DuckDB file with a table of a few units."""
    path = tmp_path_factory.mktemp("duck") / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"CREATE TABLE t AS SELECT i FROM range({ROWS}) r(i)")
    return f"duckdb://{path}"


@pytest.fixture(scope="module")
def parts(postgres: Any) -> str:
    """A table of PostgreSQL with three quick partitions and one that takes an hour."""
    url: str = postgres.database("parts")
    postgres.run(
        "CREATE TABLE p (k int, v int GENERATED ALWAYS AS (k) STORED) PARTITION BY LIST (k);"
        "CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1);"
        "CREATE TABLE p2 PARTITION OF p FOR VALUES IN (2);"
        "INSERT INTO p SELECT 1 + g % 2 FROM generate_series(1, 1000) g; VACUUM ANALYZE p;"
        "CREATE FUNCTION waits(k int) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN "
        "IF k = 2 THEN PERFORM pg_sleep(3600); END IF; RETURN true; END $$",
        url=url,
    )
    return url


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that ends processes just before a system call."""
    return breaking.killing_library(tmp_path_factory.mktemp("library"))


def test_a_killed_run_leaves_what_it_was_to_do(parts: str, tmp_path: Path) -> None:
    """Before the first row the whole run is in `_run`: a kill at any later moment leaves it."""
    dest = tmp_path / "out"
    running = command.Running(
        *("run", parts, "--table", "p", "--to", str(dest), "--split", "partition"),
        *("--parallelism", "2", "--where", "waits(k)", "--compression", "gzip:3"),
        *("--retries", "7"),
    )
    staged, record = dest / "_run" / "staged", dest / "_run" / "run.json"
    running.wait_until(lambda: any(staged.glob("*")), "a staged file")
    running.signal(signal.SIGKILL)
    running.finish()
    (document,) = json.loads(record.read_text("ascii"))["tables"]
    run = ResolvedTable.from_json(document)
    assert json.loads(json.dumps(run.to_json())) == document
    assert run.run_id == json.loads((dest / "_run" / "lock").read_text())["run_id"]
    assert len(run.plan.units) == 2
    assert run.extract.where == "waits(k)"
    assert [column.name for column in run.extract.projection.columns] == ["k", "v"]
    assert run.output.compression == Compression(codec="gzip", level=3)
    assert run.output.options.destination == str(dest)
    assert (run.request.retry.retries, run.session_sql_proof) == (7, "")
    assert len(run.seating.seats) == 2


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, signal.SIGKILL, *also(SIGNALS, signal.SIGINT, signal.SIGHUP)],
    ids=lambda number: number.name,
)
def test_a_run_with_a_finished_unit_is_in_nobodys_way(
    parts: str, tmp_path: Path, number: signal.Signals
) -> None:
    """The next run needs no option; it reports the removed files, with the run and its units."""
    dest = tmp_path / "out"
    job = ("run", parts, "--table", "p", "--to", str(dest), "--split", "partition")
    running = command.Running(*job, "--parallelism", "2", "--where", "waits(k)")
    journal = dest / "_run" / "journal.jsonl"
    running.wait_until(lambda: bool(staged_units(dest)), "a finished unit")
    running.signal(number)
    status, out, err = running.finish()
    assert (status, out) == (-9 if number == signal.SIGKILL else 130, ""), err
    assert err.count("unloader: error:") == (number != signal.SIGKILL)
    assert command.final_names(dest) == []
    assert journal.exists()
    again = command.ended(*job, "--progress", "log")
    err = again.stderr
    assert again.returncode == 0, err
    assert err.count("removed the unpublished files of run ") == 1, err
    assert err.count(": 1 finished work unit, ") == 1, err
    assert command.manifest_of(dest)["totals"]["rows"] == 1000
    assert not (dest / "_run").exists()


@pytest.mark.long(OTHER_ROUTES)
def test_what_a_partial_run_says_of_its_finished_units_is_true(parts: str, tmp_path: Path) -> None:
    """Status 7 names their directory, and announces that the next run starts again: it does.

    The first signal promises nothing of them either.
    """
    dest = tmp_path / "out"
    job = ("run", parts, "--table", "p", "--to", str(dest), "--split", "partition")
    stuck = ("--parallelism", "2", "--where", "waits(k)", "--stall-timeout", "4", "--retries", "1")
    error = command.error_of(*job, *stuck, "--retry-delay", "0.1", "--progress", "none", status=7)
    assert "run again, which starts from the beginning" in error
    assert f"until then the finished units are in {dest / '_run' / 'staged'}" in error
    assert list((dest / "_run" / "staged").iterdir())
    command.run(*job, "--quiet")
    assert not (dest / "_run").exists()
    assert "kept" not in STOPPING


@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, *also(SIGNALS, signal.SIGTERM, signal.SIGHUP)],
    ids=lambda number: number.name,
)
def test_a_signal_while_a_password_is_asked_for(tmp_path: Path, number: signal.Signals) -> None:
    """Before the run begins a signal ends the program with one line, and with 130, too."""
    with _asking(tmp_path, {}) as (process, terminal):
        os.read(terminal, 1)  # The prompt.
        process.send_signal(number)
        _check_interrupted(process)
    assert not (tmp_path / "out").exists()


def test_a_signal_right_before_a_password_is_read(library: Path, tmp_path: Path) -> None:
    """Python looks for signals before the call that waits: one that comes then is not lost."""
    env = {"LD_PRELOAD": str(library), "SIGNAL_AT_READ": str(int(signal.SIGHUP))}
    with _asking(tmp_path, env) as (process, _):
        _check_interrupted(process)


@contextmanager
def _asking(tmp_path: Path, env: dict[str, str]) -> Iterator[tuple[Program[bytes], int]]:
    """Start a run that asks for a password; yield it, and the other end of its terminal."""
    parent, child = pty.openpty()
    with Program(
        [*command.UNLOADER, "run", "postgresql://me@127.0.0.1:1/x", "--table", "t",
         "--to", str(tmp_path / "out"), "--password-prompt"],
        stdin=child, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        preexec_fn=lambda: _control(child), env={**os.environ, **env},
    ) as process:  # fmt: skip
        os.close(child)  # A wait for the prompt of an ended program gets an error.
        yield process, parent
    os.close(parent)


def _check_interrupted(process: Program[bytes]) -> None:
    out, err = process.communicate(timeout=command.PATIENCE_SECONDS)
    assert (process.returncode, out) == (130, b""), err
    assert err.count(b"unloader: error:") == 1
    assert b"Traceback" not in err


def test_a_terminal_that_goes_away_stops_the_run(parts: str, tmp_path: Path) -> None:
    """The kernel's SIGHUP ends it in good order, although the bar can be drawn no more."""
    dest = tmp_path / "out"
    parent, child = pty.openpty()
    with Program(
        [*command.UNLOADER, "run", parts, "--table", "p", "--to", str(dest),
         "--split", "partition", "--parallelism", "2", "--where", "waits(k)"],
        stdin=child, stdout=child, stderr=child, start_new_session=True,
        preexec_fn=lambda: _control(child), env={**os.environ, "TERM": "xterm"},
    ) as process:  # fmt: skip
        os.close(child)
        # What no one reads fills the terminal, and anyone who draws on it waits.
        os.set_blocking(parent, False)

        def is_staged() -> bool:
            with suppress(BlockingIOError):
                os.read(parent, 1 << 16)
            return bool(staged_units(dest))

        command.wait_for(is_staged, "a finished unit")
        os.close(parent)
        assert process.wait(180) == 130
    assert command.final_names(dest) == []
    assert (dest / "_run" / "_manifest.json").exists()


def _control(terminal: int) -> None:
    import fcntl
    import termios

    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)


STARTING = """
import os, signal, sys

class Sends:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[2]:
            os.kill(os.getpid(), int(sys.argv[1]))

sys.meta_path.insert(0, Sends())
from unloader.cli import main
sys.exit(main(["formats"]))
"""
"""Sends itself a signal when a module is about to be imported; nothing else hits that moment."""


@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, *also(SIGNALS, signal.SIGTERM, signal.SIGHUP)],
    ids=lambda number: number.name,
)
@pytest.mark.parametrize(
    "module",
    ["unloader.cli.streams", "click", "unloader.cli.commands.installation", "writers.registry"],
)
def test_a_signal_while_the_program_starts(number: signal.Signals, module: str) -> None:
    """One line and no traceback, wherever the imports are."""
    done = subprocess.run(
        [sys.executable, "-c", STARTING, str(int(number)), module],
        capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 130, done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("unloader: error: interrupted before anything was unloaded")


def test_a_signal_whose_exception_is_lost() -> None:
    """Python drops what a callback raises; the program ends all the same, with one line."""
    call = "os.kill(os.getpid(), int(sys.argv[1]))"
    lost = f"__import__('weakref').finalize(Sends(), lambda: {call})"
    done = subprocess.run(
        [sys.executable, "-c", STARTING.replace(call, lost), str(int(signal.SIGINT)), "click"],
        capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 130, done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("unloader: error: interrupted before anything was unloaded")


def test_ctrl_c_at_any_time_of_the_start() -> None:
    """After our first line a signal at any moment causes no traceback.

    Before it Python starts up: its output and status are its own, and show no line of ours. It may
    also lose the signal then, in a callback of an import, and report only this.
    """
    package = os.fspath(Path(unloader.__file__).parent)
    statuses: set[int] = set()
    began = time.monotonic()
    subprocess.run([*command.UNLOADER, "formats"], capture_output=True, check=True)
    # A busy machine takes seconds for a start, and so do the steps.
    steps = 60 if EVERYTHING else 12
    pause = (time.monotonic() - began) / steps
    step = 0
    # The last signal is one that came too late, unless the machine is slower by then.
    while not statuses >= {0, 130} and step < 2 * steps:
        with Program(
            [*command.UNLOADER, "formats"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            time.sleep(step * pause)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=180)
        # Python's own import may name the folder, and its way into a file is line 0 of that: no
        # line of ours is in a traceback.
        assert not re.search(f'File "{re.escape(package)}.*", line [1-9]', err), err
        ours = process.returncode in (0, 130)
        assert ours or process.returncode in (-signal.SIGINT, 1), err
        lost = err.startswith("Exception ignored in") and process.returncode == 0
        assert not (ours and "Traceback" in err) or lost, err
        statuses.add(process.returncode)
        step += 1
    assert 130 in statuses


def test_an_ignored_hangup_stays_ignored(parts: str, tmp_path: Path) -> None:
    """What `nohup` starts outlives its terminal."""
    dest = tmp_path / "out"
    with Program(
        ["nohup", *command.UNLOADER, "run", parts, "--table", "p", "--to", str(dest),
         "--split", "partition", "--parallelism", "2", "--where", "waits(k)"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        command.wait_for(lambda: bool(staged_units(dest)), "a finished unit")
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=180)
    assert process.returncode == 130
    assert err.count(b"stopping:") == 1
    assert b"still stopping" not in err


@pytest.mark.parametrize(
    ("call", "path", "foreign", "seen"),
    [
        ("renameat2", ".unloader-", False, {"old"}),
        *also(
            "broken publications",
            ("rename", "/t.0002.csv", True, {"new"}),
            ("rename", "/t.0002.csv", False, {"old"}),
            ("unlink", "/t.0002.csv", False, {"new"}),
        ),
    ],
    ids=["exchanging", "one by one", "filling", "clearing"],
)
def test_a_run_killed_while_it_is_published(
    library: Path, database: str, tmp_path: Path,
    call: str, path: str, foreign: bool, seen: set[str],
) -> None:  # fmt: skip
    """A reader by `*.csv` sees one run; verify completes the new one, and the next run works."""
    dest = tmp_path / "out"
    job = ("run", database, "--table", "t", "--to", str(dest), "--split", "range", "--quiet")
    cut = ("--unit-bytes", "512KiB")
    command.run(*job, *cut)
    old = {file.name: file.stat().st_ino for file in dest.glob("*.csv")}
    assert len(old) > 3
    if foreign:
        (dest / "mine.txt").write_text("mine")
        # The second series of renames is for the new files: the old ones go to another directory.
        path = "/out" + path
    env = {"LD_PRELOAD": str(library), "KILL_CALL": call, "KILL_PATH": path}
    killed = command.Running(*job, *cut, "--overwrite", env=env)
    status, _, err = killed.finish()
    assert status == -9, err
    found = {file.name: file.stat().st_ino for file in dest.glob("*.csv")}
    assert {"old" if old.get(name) == inode else "new" for name, inode in found.items()} == seen
    assert foreign or len(found) == len(old)
    error = command.error_of(*job, status=6) if foreign else ""
    assert not error or "a finished run" in error
    command.run("verify", str(dest), "--quiet")
    completed = {file.name: file.stat().st_ino for file in dest.glob("*.csv")}
    assert completed.keys() == old.keys()
    assert not set(completed.values()) & set(old.values())
    command.run(*job, "--overwrite", "--split", "none")
    assert command.manifest_of(dest)["totals"]["rows"] == ROWS
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]
