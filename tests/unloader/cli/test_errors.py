"""How the command ends when something is wrong: one line, a way out, and an exit status."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from itertools import chain
from pathlib import Path

import duckdb
import pytest
from processes.command import ended, error_of
from processes.program import Program

from unloader.cli import main, mistakes
from unloader.cli.group import COMMANDS
from unloader.request.options import every_option

Run = Callable[..., "subprocess.CompletedProcess[str]"]
ONE_LINE = re.compile(r"unloader: error: [^\n]+\. Next: [^\n]+\n")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty directory, without any variable of ours; these tests start no process."""
    for name in [name for name in os.environ if name.startswith("UNLOADER_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "status", "what"),
    [
        (("frobnicate",), 2, "not a command"),
        (("verfy", "out"), 2, "did you mean verify?"),
        (("tables", "duckdb:///x.db"), 2, "did you mean describe?"),
        (("export", "duckdb:///x.db"), 2, "did you mean run?"),
        (
            ("run", "duckdb:///x.db", "--table", "t", "--output", "o"),
            2,
            "--output. Next: use --to (group Output).",
        ),
        (
            ("run", "duckdb:///x.db", "--table", "t", "--jobs", "4"),
            2,
            "use --parallelism (group Speed). See unloader help run --parallelism",
        ),
        (("run", "duckdb:///x.db", "--table", "t", "--s3-endpoint", "X"), 2, "?endpoint=URL"),
        (("run",), 2, "SOURCE"),
        (("run", "duckdb:///x.db", "--table", "t"), 2, "--to"),
        (("run", "duckdb:///x.db", "--to", "o"), 2, "--table or --query"),
        (("run", "duckdb:///x.db", "--to", "o", "--table", "t", "--query", "q"), 2, "--query"),
        (("run", "duckdb:///x.db", "--to", "o", "--table", "t", "--frmt", "csv"), 2, "--frmt"),
        (("run", "duckdb:///x.db", "--table", "t", "--to", ""), 2, "--to is empty"),
        (("run", "duckdb:///x.db", "--table", " ", "--to", "o"), 2, "--table is empty"),
        (("plan", "duckdb:///x.db", "--table", "t", "--where", ""), 2, "--where is empty"),
        (
            ("plan", "duckdb:///x.db", "--table", "t", "--file-per=table", "--file-size=1GB"),
            2,
            "--file-size does not apply to --file-per table",
        ),
        (("plan", "duckdb:///x.db", "--table", "t", "--numa-nodes", "0-99999999999"), 2, "65535"),
        (("plan", "duckdb:///x.db", "--table", "t", "--file-size", "9" * 400), 2, "too large"),
        (("run", "a", "b", "c"), 2, "too many"),
        (("size", "--rows", "-5"), 2, "'--rows': '-5' is not a number"),
        (("size", "-5"), 2, "unknown option"),
        (("run", "x.db", "--to", "o", "--table", "t"), 2, "source URL"),
        (("run", "mongodb://h/x", "--to", "o", "--table", "t"), 3, "mongodb"),
        (("run", "nowhere.toml", "--to", "o"), 3, "nowhere.toml"),
        (("run", "nowhere.json", "--to", "o"), 3, "nowhere.json"),
        (("describe", "duckdb:///nowhere/x.db"), 4, "nowhere/x.db"),
        (("verify", "nowhere"), 6, "nowhere"),
        (("plan", "plan.json"), 3, "plan.json"),
    ],
)
def test_a_mistake_is_one_line_with_a_way_out(
    here: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    status: int,
    what: str,
) -> None:
    """On any error stdout stays empty, and stderr has one line with the cause and the remedy."""
    assert main(arguments) == status
    output, errors = capsys.readouterr()
    assert output == ""
    assert ONE_LINE.fullmatch(errors), errors
    assert what in errors


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (("--parallelism", "0"), "--parallelism"),
        (("--file-size", "12 parsecs"), "12 parsecs"),
        (("--compression", "zip"), "zip"),
        (("--compression", "zstd:fast"), "is not a level"),
        (("--compression", "snappy"), "snappy"),
        (("--delimiter", r"\q"), r"\q"),
        (("--delimiter", ""), "--delimiter"),
        (("--overlap-buffer", "0"), "0 is below 1"),
        (("--encoding", "klingon"), "--encoding"),
        (("--columns", "A,,B"), "has an empty item"),
        (("--numa-nodes", "3-1"), "3-1"),
        (("--dialect", "word"), "--dialect"),
        (("--format", "parquet", "--delimiter", ";"), "--delimiter"),
        (("--format", "parquet", "--no-header"), "--header"),
        (("--row-group-rows", "1000"), "--row-group-rows"),
        (("--zone-columns",), "--zone-columns does not apply to --format csv"),
        (("--scn", "5", "--consistency", "none"), "--scn does not apply to --consistency none"),
        (("--file-name", "{table}.{ext}"), "{unit}"),
        (("--file-name", "{table}.{unit}.{extension}"), "{extension}"),
        (("--file-name", "{unit}.{ext}", "--file-size", "1MB"), "{part}"),
        (("--file-name", "{unit}.{ext}", "--file-per", "table"), "{unit}"),
        (("--file-name", "../{unit}.{ext}"), "slashes"),
        (("--file-name", "{unit"), "a brace that is not closed"),
        (("--file-name", "unit}.{unit}"), "a brace that is not opened"),
        (("--to", "o,o"), "names the same directory twice: o and o"),
        (("--to", "o/,./o"), "names the same directory twice"),
        (("--to", "o,o/inner"), "o/inner in o"),
        (("--to", "/o/inner,/p,/o"), "/o/inner in /o"),
        (("--delimiter", ",", "--enclosure", ","), "--enclosure"),
        (("--delimiter", "ab", "--eol", "bc"), "--eol"),
        (("--null", '"'), "--null"),
        (("--decimal-separator", ""), "--decimal-separator"),
        (("--date-format", "YYYY-XYZ"), "XYZ"),
        (("--encoding", "ascii", "--delimiter", "\u00a7"), "--delimiter"),
        (("--unit-bytes", "0"), "--unit-bytes"),
        (("--compression", "zstd:"), "zstd:3"),
        (("--compression", "zstd:99"), "99"),
        (("--compression", "gzip:-1"), "-1"),
        (("--compression", "snappy", "--file-per", "table"), "snappy"),
        (("--numa", "off", "--bind", "core"), "--bind does not apply to --numa off"),
        (("--numa", "off", "--numa-nodes", "0"), "--numa-nodes does not apply to --numa off"),
        (("--numa", "off", "--placement", "spread"), "--placement does not apply"),
        (("--numa", "off", "--memory-policy", "bind"), "--memory-policy does not apply"),
        (("--numa", "off", "--near", "eth0"), "--near does not apply"),
        (("--to", "ftp://bucket/x"), "--to looks like a URL"),
        (("--to", "s3://bucket/x"), "directories and an object store"),
        (("--table", "a.b.c"), "a.b.c"),
        (("--password-prompt",), "terminal"),
        (("--password-file", "nowhere"), "--password-file"),
    ],
)
def test_an_impossible_option_is_told_before_anything_connects(
    here: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], what: str
) -> None:
    """Values and combinations that cannot be meant are refused, and nothing is left behind."""
    status = main(("run", "duckdb:///nowhere.db", "--table", "t", "--to", "out", *options))
    errors = capsys.readouterr().err
    assert ONE_LINE.fullmatch(errors), errors
    assert what in errors
    # Whether a file can be read is not known from the command line alone.
    assert status == (3 if options[0] == "--password-file" else 2)
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    "options", [("--partition", "P*"), ("--where", "1=1"), ("--split", "range")]
)
def test_what_needs_a_table_is_refused_with_a_query(
    here: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    """A query is read as one unit and has its own conditions."""
    assert main(("plan", "duckdb:///x.db", "--query", "SELECT 1", *options)) == 2
    errors = capsys.readouterr().err
    assert f"{options[0]} " in errors
    assert "--query" in errors


def test_with_json_an_error_is_the_object_on_stdout(unloader: Run) -> None:
    """A caller that reads JSON gets kind, message, hint and exit status there, too."""
    result = unloader("describe", "duckdb:///nowhere/x.db", "--json")
    error = json.loads(result.stdout)["error"]
    assert error["kind"] == "SourceError"
    assert error["exit_code"] == result.returncode == 4
    assert ONE_LINE.fullmatch(result.stderr)


def test_tracebacks_need_debug(unloader: Run) -> None:
    """Only --debug, or its variable, shows where an error came from."""
    arguments = ("describe", "duckdb:///nowhere/x.db")
    assert "Traceback" not in unloader(*arguments).stderr
    assert "Traceback" in unloader("--debug", *arguments).stderr
    assert "Traceback" in unloader(*arguments, variables={"UNLOADER_DEBUG": "1"}).stderr


def test_a_fault_of_the_program_is_one_line_too(tmp_path: Path) -> None:
    """An unexpected exception ends with status 1 and asks for a report."""
    # No known input makes the program fail like that: a command is broken on purpose.
    script = (
        "import sys, unloader.cli.commands.installation as module\n"
        "from unloader.cli import main\n"
        "module.formats.callback = lambda **values: 1 / 0\n"
        "sys.exit(main(['formats']))\n"
    )
    root = Path(__file__).parents[3]
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=root, capture_output=True, text=True
    )
    assert result.returncode == 1
    assert result.stderr == (
        "unloader: error: internal error: ZeroDivisionError: division by zero. "
        "Next: run again with --debug (unloader --debug ...) and report it\n"
    )


def test_a_reader_that_leaves_is_no_error(
    tmp_path: Path, environment: dict[str, str], program: tuple[str, ...]
) -> None:
    """`unloader formats | head -0` ends quietly."""
    process = Program(
        [*program, "formats"],
        env=environment,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    _, errors = process.communicate(timeout=180)
    assert errors == b""
    assert process.returncode == 0


def test_no_command_shows_the_help_page_as_an_error(unloader: Run) -> None:
    """Without a command the first screen goes to stderr, and the status is 2."""
    result = unloader()
    assert (result.returncode, result.stdout) == (2, "")
    assert "Common commands:" in result.stderr


@pytest.mark.parametrize("to", ["--to=-", "UNLOADER_TO"])
def test_an_error_as_json_never_mixes_with_data(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, to: str
) -> None:
    """Where stdout is for rows, a reader of rows gets none of the error: it is on stderr."""
    monkeypatch.setenv("UNLOADER_TO", "-")
    given = (to,) if to.startswith("-") else ()
    assert main(["run", "duckdb:///x.db", "--table", "t", *given, "--json"]) == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert ONE_LINE.fullmatch(errors), errors
    assert "--json and --to - both write to standard output" in errors


def test_every_word_of_other_tools_leads_to_one_of_ours(here: Path) -> None:
    """The commands and options that are named instead of others exist."""
    known = {*COMMANDS, "unloader", "--no-header", *(f"--{each.name}" for each in every_option())}
    assert {text.split()[0] for text in mistakes._SAME_AS} <= known


@pytest.mark.parametrize("option", ["--where", "--schema", "--columns", "--mask", "--to"])
@pytest.mark.parametrize("after", [(), ("--overwrite",)])
def test_an_option_needs_its_value(here: Path, option: str, after: tuple[str, ...]) -> None:
    """`--where $CONDITION` with an empty variable is an error, and does not unload all rows."""
    duckdb.connect("s.db").execute("CREATE TABLE t AS SELECT 1 AS i").close()
    run = ("run", f"duckdb://{here}/s.db", "--table", "t", "--to", "o")
    assert f"option {option} needs a value" in error_of(*run, option, *after, status=2)
    assert not Path("o").exists()


@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        (("--query", "-- all\nFROM t"), "i,n\n0,-1\n1,-1\n2,-1\n"),
        (("--where", "-i < 0"), "i,n\n1,-1\n2,-1\n"),
    ],
    ids=["query", "where"],
)
def test_a_value_may_begin_like_an_option(
    here: Path, rows: tuple[str, str], wanted: str, joined: bool
) -> None:
    """A condition on a negative column, a query after a comment, a negative number, a path."""
    duckdb.connect("s.db").execute("CREATE TABLE t AS SELECT range i, NULL n FROM range(3)").close()
    table = ("--table", "t") if rows[0] == "--where" else ()
    pairs = (rows, ("--null", "-1"), ("--to", "-o"))
    words = ["=".join(pair) for pair in pairs] if joined else [*chain(*pairs)]
    ran = ended("run", f"duckdb://{here}/s.db", *table, *words)
    assert ran.returncode == 0, ran.stderr
    (file,) = Path("-o").glob("*.csv")
    assert file.read_text() == wanted


def test_a_masking_key_in_place_of_its_variable_is_not_shown(here: Path) -> None:
    """The text after env: is the name of a variable, and a key there is not repeated."""
    duckdb.connect("s.db").execute("CREATE TABLE t AS SELECT 'a' AS s").close()
    run = ("run", f"duckdb://{here}/s.db", "--table", "t", "--to", "o", "--mask", "s=hmac")
    error = error_of(*run, "--mask-key", "env:c2VjcmV0=", status=2)
    assert "does not give a place" in error
    assert "c2Vj" not in error
    error = error_of(*run, "--mask-key", "env:c2VjcmV0", status=3)
    assert "after env: put the name of a variable instead of the key" in error
    assert "c2Vj" not in error


def test_a_database_file_is_recognized_by_its_first_bytes(here: Path) -> None:
    """SQLite and DuckDB files are named with their URL; another file is not taken for one."""
    with closing(sqlite3.connect("one.db")) as connection:
        connection.execute("CREATE TABLE t (i)")
        connection.commit()
    duckdb.connect("two.db").close()
    Path("three.csv").write_text("a")
    for name, said in (
        ("one.db", f"write sqlite://{here}/one.db"),
        ("two.db", f"write duckdb://{here}/two.db"),
        ("three.csv", "not a database of SQLite or DuckDB"),
    ):
        assert said in error_of("describe", name, status=2)
    assert f"written sqlite://{here}/one.db" in error_of("run", "one.db", status=2)
    assert f"written duckdb://{here}/two.db" in error_of("run", "two.db", status=2)


def test_the_file_of_a_run_is_not_taken_for_the_run(here: Path) -> None:
    """verify of a file names the directory that is to be given."""
    duckdb.connect("s.db").execute("CREATE TABLE t AS SELECT 1 AS i").close()
    done = ended(
        "run", f"duckdb://{here}/s.db", "--table", "t", "--to", "o/t.csv", "--progress=none"
    )
    assert "o/t.csv is a directory" in done.stderr
    for name in ("t.0001.csv", "_manifest.json"):
        error = error_of("verify", f"o/t.csv/{name}", status=2)
        assert "DEST is the directory of a run. Next: name its directory" in error
        assert "unloader verify o/t.csv" in error
