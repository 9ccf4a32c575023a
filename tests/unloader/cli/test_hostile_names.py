"""Names and messages that mean to rule the terminal: shown, written out, and never obeyed."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31mred\rover\u202etxt\u2028x"
"""Sets the title, clears the screen, colours, writes over the line, turns the direction round."""

QUOTED = f'"{HOSTILE}"'
SHOWN = r"\x1b]0;owned\x07\x1b[2J\x9b31mred"

OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


@pytest.fixture
def hostile(tmp_path: Path) -> str:
    """The URL of a database whose table and column have that name."""
    path = tmp_path / "hostile.db"
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"CREATE TABLE {QUOTED} AS SELECT 1 AS {QUOTED}, '{HOSTILE}' AS v")
    return f"duckdb://{path}"


@pytest.fixture
def ask(unloader: Run) -> Callable[..., str]:
    """Make a call, fail if its output has control codes of a terminal, and return the output."""

    def make(*arguments: str, status: int = 0) -> str:
        done = unloader(*arguments)
        assert done.returncode == status, done.stderr
        for text in (done.stdout, done.stderr):
            assert not OBEYED.search(text), (arguments[:2], text)
        return done.stdout + done.stderr

    return make


def test_names_in_tables_and_plans(ask: Callable[..., str], hostile: str) -> None:
    """Lists of tables and columns, plans, and the measuring of codecs write such names out."""
    assert SHOWN in ask("describe", hostile)
    for command in ("describe", "plan"):
        assert SHOWN in ask(command, hostile, "--table", QUOTED)
    ask("codecs", hostile, "--table", QUOTED)
    ask("describe", hostile, "--json")


def test_names_of_files_and_directories(
    ask: Callable[..., str], hostile: str, tmp_path: Path
) -> None:
    """A run and its check: the log, the summary, the directory's name, and files of strangers."""
    out = f"out{HOSTILE}"
    assert SHOWN in ask("run", hostile, "--table", QUOTED, "--to", out, "--progress", "log")
    (found,) = (tmp_path / out).glob("*.csv")
    assert found.name.startswith("%1B]0;owned%07%1B[2J%C2%9B31mred%0Dover%E2%80%AEtxt")
    (tmp_path / out / "strange\x1b[2J.csv").touch()
    assert r"strange\x1b[2J.csv" in ask("verify", out, "--strict", status=8)
    assert SHOWN in ask("run", hostile, "--table", QUOTED, "--to", out, status=6)


@pytest.mark.parametrize("general", [(), ("--debug",)])
def test_messages_of_a_server(
    ask: Callable[..., str], hostile: str, general: tuple[str, ...]
) -> None:
    """What a database says in an error, also in a traceback and in messages of --debug."""
    condition = ("--table", QUOTED, "--where", f"{QUOTED} = nosuch", "--to", "out")
    assert SHOWN in ask(*general, "run", hostile, *condition, status=4)
    query = ("--query", f"SELECT error('{HOSTILE}') FROM range(2)", "--to", "out")
    assert SHOWN in ask(*general, "run", hostile, *query, "--retries", "0", status=4)


@pytest.mark.parametrize(
    "arguments",
    [
        (HOSTILE,),
        ("run", HOSTILE),
        ("describe", "duckdb:///nowhere.db", f"--{HOSTILE}"),
        ("describe", f"duckdb:///nowhere{HOSTILE}.db"),
        ("verify", f"nowhere{HOSTILE}"),
        ("run", f"{HOSTILE}.toml"),
    ],
)
def test_what_was_typed(unloader: Run, arguments: tuple[str, ...]) -> None:
    """A wrong command line, too: another user may have written the script."""
    done = unloader(*arguments)
    assert done.returncode in (2, 3, 4, 6, 8), done.stderr
    assert not OBEYED.search(done.stdout + done.stderr), done.stderr
