"""The first workers of a command are forks of it, where nothing stands against that."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from numa.topology import detect

PROGRAM = """
import sys, threading

# ADBC imports polars where it is installed, and a process with its threads cannot be forked.
sys.modules["polars"] = None
import numa.processes.launch as launch

forks, fork = [], launch.fork
launch.fork = lambda *given: (forks.append(1), fork(*given))[1]
from unloader.cli import main

over = threading.Event()
if {thread}:
    threading.Thread(target=over.wait).start()
status = main({arguments})
over.set()
print("forks", len(forks), "status", status)
"""


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A SQLite file with a small table."""
    path = tmp_path_factory.mktemp("forked") / "small.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE small (id INTEGER, name TEXT)")
    connection.executemany("INSERT INTO small VALUES (?, ?)", [(n, "x" * n) for n in range(50)])
    connection.commit()
    connection.close()
    return f"sqlite://{path}"


@pytest.mark.parametrize(
    ("form", "thread", "ours"),
    [
        pytest.param("csv", False, True, id="csv"),
        pytest.param("parquet", False, True, id="parquet"),
        pytest.param("csv", True, True, id="with a thread"),
        pytest.param("csv", False, False, id="called by a program"),
    ],
)
def test_the_first_workers_are_forked(
    database: str, tmp_path: Path, form: str, thread: bool, ours: bool
) -> None:
    """So they are in the command's own process that has one thread; the output is the same."""
    arguments = ["run", database, "--table", "small", "--to", str(tmp_path / "out")]
    arguments += ["--format", form, "--parallelism", "2"]
    program = PROGRAM.format(thread=thread, arguments="" if ours else arguments)
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={name: os.environ[name] for name in os.environ if not name.startswith("UNLOADER_")},
    )
    topology = detect()
    possible = sys.platform == "linux" and len(topology.nodes) == 1 and topology.note is None
    expected = 2 if possible and ours and not thread else 0
    assert done.stdout.splitlines()[-1] == f"forks {expected} status 0"
    assert len(list((tmp_path / "out").glob(f"*.{form}"))) == 1
