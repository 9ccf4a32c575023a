"""What happens where the standard streams are closed, full, or not in our encoding."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]
Shell = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def shell(tmp_path: Path, environment: dict[str, str], program: tuple[str, ...]) -> Shell:
    """Run the command with the redirections of a shell."""

    def run(redirections: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-c", f'exec "$@" {redirections}', "sh", *program, *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run


@pytest.mark.parametrize("closed", ["2>&-", ">&-", "<&- >&- 2>&-"])
def test_closed_streams_do_no_harm(
    shell: Shell, database: str, tmp_path: Path, closed: str
) -> None:
    """A daemon's child runs as any other, and nothing meant for a stream gets into a file."""
    result = shell(
        closed, "run", database, "--table", "orders", "--to", "out", "--log-interval", "0"
    )
    assert result.returncode == 0, result.stderr
    manifest = json.loads((tmp_path / "out/_manifest.json").read_text())
    assert manifest["totals"]["rows"] == 3000
    (path,) = (tmp_path / "out").glob("*.csv")
    lines = path.read_text().splitlines()
    assert lines[:2] == ["id,name,amount", "0,name 0,0.00"]
    assert len(lines) == 3001


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_full_stdout_is_an_error_of_the_output(
    shell: Shell, database: str, tmp_path: Path, form: tuple[str, ...]
) -> None:
    """The run is done, its result cannot be told: status 6, one line, no traceback."""
    result = shell(
        ">/dev/full", "run", database, "--table", "orders", "--to", "out", "--progress", "none",
        *form,
    )  # fmt: skip
    assert result.returncode == 6
    error = result.stderr.splitlines()[-1]
    assert error.startswith("unloader: error: the result cannot be written to standard output: ")
    assert "_manifest.json" in error
    assert "Traceback" not in result.stderr
    assert (tmp_path / "out/_manifest.json").is_file()


@pytest.mark.parametrize("lost", ["2>/dev/full", "2>&-", ">/dev/full 2>/dev/full"])
def test_exit_status_survives_streams_that_fail(shell: Shell, database: str, lost: str) -> None:
    """The status tells what went wrong where no text can."""
    arguments = ("run", database, "--table", "nowhere", "--to", "out", "--json")
    assert shell(lost, *arguments).returncode == 4


def test_bytes_that_are_no_text_are_refused(
    tmp_path: Path, environment: dict[str, str], program: tuple[str, ...], database: str
) -> None:
    """Argument and variable in another encoding than the terminal's: status 2, nothing touched."""
    arguments = [*map(os.fsencode, (*program, "run", database, "--table", "orders", "--to"))]
    variables = {**environment, "LC_ALL": "C.UTF-8"}
    for extra, changed, named in (
        ([b"caf\xe9"], {}, "the argument caf\\xe9"),
        ([b"out"], {b"UNLOADER_PASSWORD": b"s\xe9cret"}, "the variable UNLOADER_PASSWORD"),
    ):
        result = subprocess.run(
            [*arguments, *extra],
            cwd=tmp_path,
            env={**{os.fsencode(k): os.fsencode(v) for k, v in variables.items()}, **changed},
            capture_output=True,
            text=True,
        )
        assert result.returncode == 2, result.stderr
        assert f"unloader: error: {named} holds bytes" in result.stderr
        assert "cret" not in result.stderr
        assert list(tmp_path.iterdir()) == []


def test_names_with_escape_sequences_are_shown_harmless(unloader: Run, tmp_path: Path) -> None:
    """A terminal obeys no name of a table: its control characters are written as text."""
    import duckdb

    with duckdb.connect(str(tmp_path / "evil.db")) as connection:
        connection.execute('CREATE TABLE "a\x1b[31mb\nc" AS SELECT 1 AS i')
    url = f"duckdb://{tmp_path}/evil.db"
    shown = unloader("describe", url)
    assert "a\\x1b[31mb c" in shown.stdout
    run = unloader("run", url, "--table", '"a\x1b[31mb\nc"', "--to", "out")
    assert run.returncode == 0, run.stderr
    assert "unloading a\\x1b[31mb c: " in run.stderr
    wrong = unloader("run", url, "--table", '"no\x1b[2Jt"', "--to", "out2")
    assert wrong.returncode == 4
    for text in (shown.stdout, run.stdout, run.stderr, wrong.stderr):
        assert "\x1b" not in text
