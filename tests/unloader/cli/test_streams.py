"""What happens where the standard streams are closed, full, or not in our encoding."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from long_tests import OTHER_ROUTES

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
            timeout=600,
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
def test_a_result_that_stdout_does_not_take_is_told_apart_from_a_failed_run(
    shell: Shell, database: str, tmp_path: Path, form: tuple[str, ...]
) -> None:
    """The run is done, but cannot print its result: a separate status, one line, no traceback."""
    result = shell(
        ">/dev/full", "run", database, "--table", "orders", "--to", "out", "--progress", "none",
        *form,
    )  # fmt: skip
    assert result.returncode == 9
    error = result.stderr.splitlines()[-1]
    assert error.startswith(
        "unloader: error: the run is complete in out, but the result cannot be written to standard "
        "output: "
    )
    assert "_manifest.json" in error
    assert "Traceback" not in result.stderr
    assert (tmp_path / "out/_manifest.json").is_file()


@pytest.mark.parametrize(
    "arguments", [("formats",), ("--help",), ("--version",), ("run", "--help")]
)
def test_an_answer_to_a_full_stdout_is_lost(shell: Shell, arguments: tuple[str, ...]) -> None:
    """What only tells something has told nothing then: status 9 and one line."""
    result = shell(">/dev/full", *arguments)
    assert result.returncode == 9
    assert "the result cannot be written to standard output: " in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_an_answer_without_a_stdout_is_an_error(
    shell: Shell, database: str, tmp_path: Path
) -> None:
    """JSON for a closed stdout is refused before anything is opened; so is any mere answer."""
    run = shell(">&-", "run", database, "--table", "orders", "--to", "out", "--json")
    assert run.returncode == 2
    assert "--json needs standard output, and it is closed" in run.stderr
    assert not (tmp_path / "out").exists()
    assert shell(">&-", "describe", database).returncode == 9


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.parametrize("lost", ["2>/dev/full", "2>&-", ">/dev/full 2>/dev/full"])
def test_exit_status_survives_streams_that_fail(shell: Shell, database: str, lost: str) -> None:
    """The status has the kind of the error if no text can be written."""
    arguments = ("run", database, "--table", "nowhere", "--to", "out", "--json")
    assert shell(lost, *arguments).returncode == 4


def test_bytes_that_are_no_text_are_refused(
    tmp_path: Path, environment: dict[str, str], program: tuple[str, ...], database: str
) -> None:
    """Argument and variable in another encoding than the terminal's: status 2, nothing touched."""
    arguments = [*map(os.fsencode, (*program, "run", database, "--table", "orders", "--to"))]
    variables = {**environment, "LC_ALL": "C.UTF-8"}
    for extra, changed, named in (
        ([b"caf\xe9"], {}, "the argument 6"),
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


def test_names_that_differ_look_different(unloader: Run, tmp_path: Path) -> None:
    """A newline, a blank, a text of backslash and n, and a mark without width are distinct."""
    import duckdb

    names = {"b\nc": r"b\nc", "b c": "b c", r"b\nc": r"b\\nc", "b\u200bc": r"b\u200bc"}
    with duckdb.connect(str(tmp_path / "odd.db")) as connection:
        listed = ", ".join(f'{at} AS "{name}"' for at, name in enumerate(names))
        connection.execute(f"CREATE TABLE t AS SELECT {listed}")
    url = f"duckdb://{tmp_path}/odd.db"
    shown = unloader("describe", url, "--table", "t").stdout
    for name in names.values():
        assert f"\n{name}  " in shown
    planned = unloader("plan", url, "--query", "SELECT \"b\nc\",\n  'x\ty' AS z\n FROM t").stdout
    assert "(SELECT \"b\\nc\", 'x\\ty' AS z FROM t ) AS query" in planned


def test_names_with_escape_sequences_are_shown_harmless(unloader: Run, tmp_path: Path) -> None:
    """A terminal obeys no name of a table: its control characters are written as text."""
    import duckdb

    with duckdb.connect(str(tmp_path / "evil.db")) as connection:
        connection.execute('CREATE TABLE "a\x1b[31mb\nc" AS SELECT 1 AS i')
    url = f"duckdb://{tmp_path}/evil.db"
    shown = unloader("describe", url)
    assert "a\\x1b[31mb\\nc" in shown.stdout
    run = unloader("run", url, "--table", '"a\x1b[31mb\nc"', "--to", "out")
    assert run.returncode == 0, run.stderr
    assert "unloading main.a\\x1b[31mb\\nc: " in run.stderr
    wrong = unloader("run", url, "--table", '"no\x1b[2Jt"', "--to", "out2")
    assert wrong.returncode == 4
    for text in (shown.stdout, run.stdout, run.stderr, wrong.stderr):
        assert "\x1b" not in text
