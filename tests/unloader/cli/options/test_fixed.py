"""Records of fixed width and substitutes from the command line, read back by other programs."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from long_tests import OTHER_ROUTES, also

Run = Callable[..., "subprocess.CompletedProcess[str]"]

ROWS = 3000
WIDTHS = ("--width", "name=12")


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a DuckDB file with a table of several types and NULLs, and a text with a euro."""
    path = tmp_path_factory.mktemp("fixed") / "things.db"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE TABLE things AS SELECT i::INTEGER AS id, "
            "CASE WHEN i % 7 <> 0 THEN 'näme ' || i END AS name, "
            "CAST(i * 1.25 - 100 AS DECIMAL(9, 2)) AS price, DATE '2024-01-01' + i::INTEGER AS day, "
            "TIMESTAMP '2024-01-01' + to_microseconds(i * 1000001) AS at, i % 2 = 0 AS even, "
            f"uuid() AS key FROM range({ROWS}) t(i)"
        )
        connection.execute("CREATE TABLE euro AS SELECT '10 €, or 9' AS price")
    return f"duckdb://{path}"


def manifest(directory: Path) -> dict[str, Any]:
    """Return the manifest of a finished run."""
    found: dict[str, Any] = json.loads((directory / "_manifest.json").read_text("utf-8"))
    return found


def only(directory: Path) -> bytes:
    """Return the content of the only data file."""
    (path,) = directory.glob("*.csv")
    return path.read_bytes()


def test_every_value_stands_where_the_manifest_says(
    unloader: Run, things: str, tmp_path: Path
) -> None:
    """DuckDB cuts the lines at the positions and gets the table's own values back."""
    ran = unloader(
        *("run", things, "--table", "things", "--fixed", *WIDTHS, "--encoding", "utf-8"),
        *("--file-per", "table", "--verify", "full", "--to", "out"),
    )
    assert ran.returncode == 0, ran.stderr
    columns = manifest(tmp_path / "out")["columns"]
    first, last = zip(*(column["position"] for column in columns), strict=True)
    assert first == (1, *(end + 1 for end in last[:-1]))
    raw = only(tmp_path / "out")
    assert len(raw) == ROWS * (last[-1] + 1)
    cuts = ", ".join(
        f"nullif(trim(decode(line[{column['position'][0]}:{column['position'][1]}]), ' '), '')"
        f"::{column['source_type']} AS {column['name']}"
        for column in columns
    )
    lines = [raw[start : start + last[-1]] for start in range(0, len(raw), last[-1] + 1)]
    with duckdb.connect(things.removeprefix("duckdb://"), read_only=True) as connection:
        connection.execute("SET GLOBAL TimeZone = 'UTC'")
        connection.execute("CREATE TEMP TABLE lines (line BLOB)")
        connection.execute("INSERT INTO lines SELECT unnest(?::BLOB[])", [lines])
        cut = f"SELECT {cuts} FROM lines"
        for left, right in ((cut, "FROM things"), ("FROM things", cut)):
            (different,) = connection.execute(
                f"SELECT count(*) FROM ({left} EXCEPT ALL {right})"
            ).fetchone() or (None,)
            assert different == 0
    checked = unloader("verify", "out", things)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.long(OTHER_ROUTES)
def test_widths_do_not_depend_on_units_or_workers(
    unloader: Run, things: str, tmp_path: Path
) -> None:
    """With each way to read the table and cut the files, records have one size and one content."""
    for name, options in {
        "one": ("--parallelism", "1"),
        "many": ("--parallelism", "3", "--split", "range", "--unit-bytes", "64KiB"),
        "small": ("--file-size", "20kB"),
    }.items():
        ran = unloader(
            *("run", things, "--table", "things", "--fixed", *WIDTHS, "--to", name, *options)
        )
        assert ran.returncode == 0, ran.stderr
    contents = {
        name: b"".join(path.read_bytes() for path in sorted((tmp_path / name).glob("*.csv")))
        for name in ("one", "many", "small")
    }
    assert len({frozenset(content.split(b"\n")) for content in contents.values()}) == 1
    assert len(list((tmp_path / "small").glob("*.csv"))) > 1


def test_records_may_follow_one_another_without_an_end(
    unloader: Run, things: str, tmp_path: Path
) -> None:
    """A job file has the widths as a table; SQL*Loader's `fix` takes records by their size."""
    (tmp_path / "job.toml").write_text(
        f'source = "{things}"\ntable = "things"\ncolumns = ["name", "id"]\nto = "out"\n'
        'fixed = true\neol = ""\nnull = "-"\nencoding = "utf-16-be"\nparallelism = 1\n'
        "[width]\nNAME = 24\n"
    )
    ran = unloader("run", "job.toml", "--verify", "full")
    assert ran.returncode == 0, ran.stderr
    raw = only(tmp_path / "out")
    records = [raw[start : start + 46].decode("utf-16-be") for start in range(0, len(raw), 46)]
    assert records[:2] == ["-                     0", "näme 1                1"]
    assert len(records) == ROWS


def test_a_plan_shows_missing_widths_and_carries_given_ones(
    unloader: Run, things: str, tmp_path: Path
) -> None:
    """`plan` refuses as `run` does, by name; its file brings the widths along."""
    for command in (("plan",), ("run", "--to", "out")):
        refused = unloader(command[0], things, "--table", "things", "--fixed", *command[1:])
        assert refused.returncode == 2
        assert "no width for name:" in refused.stderr
        assert "--width name=BYTES" in refused.stderr
    made = unloader(
        *("plan", things, "--table", "things", "--fixed", *WIDTHS, "--output", "plan.json")
    )
    assert made.returncode == 0, made.stderr
    ran = unloader("run", "plan.json", "--to", "out")
    assert ran.returncode == 0, ran.stderr
    assert manifest(tmp_path / "out")["columns"][1]["position"] == [12, 23]


def test_a_value_that_does_not_fit_stops_the_run(
    unloader: Run, things: str, tmp_path: Path
) -> None:
    """With the column, the row and the option; nothing is left under a final name."""
    ran = unloader(
        *("run", things, "--table", "things", "--fixed", "--width", "name=8", "--to", "out")
    )
    assert ran.returncode == 6
    assert "column name, row 101: the value needs 9 bytes, but its field has 8" in ran.stderr
    assert "--width name=BYTES" in ran.stderr
    assert not list((tmp_path / "out").glob("*.csv"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--width", "name=3"), "--width does not apply without --fixed"),
        (("--fixed", "--delimiter", ";"), "--delimiter does not apply to --fixed"),
        (("--fixed", "--header"), "--header does not apply to --fixed"),
        (("--fixed", "--format", "parquet"), "--fixed does not apply to --format parquet"),
        (("--substitute", "?", "--format", "parquet"), "--substitute does not apply"),
        (("--eol", ""), "--eol is empty"),
        (("--fixed", "--width", "name"), "write COLUMN=BYTES"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    unloader: Run, things: str, options: tuple[str, ...], said: str
) -> None:
    """As a matter of usage, with the way out."""
    refused = unloader("plan", things, "--table", "things", *options)
    assert refused.returncode == 2, refused.stderr
    assert said in refused.stderr


def test_a_width_that_no_characters_fill_is_a_wrong_option(unloader: Run, things: str) -> None:
    """In UTF-16 a width is even; that is found before anything is read, as for other values."""
    widths = ("--fixed", "--width", "NAME=23", "--encoding", "utf-16-be")
    refused = unloader("run", things, "--table", "things", "--to", "out", *widths)
    assert refused.returncode == 2
    assert "23 bytes" in refused.stderr
    assert "give --width a multiple of that" in refused.stderr


def test_a_dialect_gives_what_fixed_records_have_too(
    unloader: Run, things: str, tmp_path: Path
) -> None:
    """End of line and masks are the dialect's; its delimiter, header and length are left out."""
    ran = unloader(
        *("run", things, "--table", "things", "--columns", "id,day", "--where", "id = 5"),
        *("--dialect", "sqlldr-var", "--fixed", "--no-header", "--to", "out"),
    )
    assert ran.returncode == 0, ran.stderr
    assert only(tmp_path / "out") == b"          520240106000000\r\n"


@pytest.mark.long(OTHER_ROUTES)
def test_sqlite_does_not_pad_its_char_columns(unloader: Run, tmp_path: Path) -> None:
    """A declared length is a width; blanks at the end of a CHAR are data there and refused."""
    with sqlite3.connect(tmp_path / "s.db") as connection:
        connection.execute("CREATE TABLE t (c CHAR(4), v VARCHAR(5), n INTEGER)")
        connection.execute("INSERT INTO t VALUES ('a', 'bcdef', 7), (NULL, NULL, NULL)")
    url = f"sqlite://{tmp_path / 's.db'}"
    arguments = ("run", url, "--table", "t", "--fixed", "--encoding", "latin-1", "--to", "out")
    ran = unloader(*arguments)
    assert ran.returncode == 0, ran.stderr
    assert only(tmp_path / "out") == b"a   bcdef" + b" " * 19 + b"7\n" + b" " * 29 + b"\n"
    with sqlite3.connect(tmp_path / "s.db") as connection:
        connection.execute("INSERT INTO t VALUES ('b ', 'x', 1)")
    refused = unloader(*arguments, "--overwrite")
    assert refused.returncode == 6
    assert "column c, row 3: the value ends in a blank" in refused.stderr


@pytest.mark.parametrize("encoder", ["auto", *also(OTHER_ROUTES, "plain")])
def test_a_substitute_stands_for_what_an_encoding_lacks(
    unloader: Run, things: str, tmp_path: Path, encoder: str
) -> None:
    """Without it the run stops and names it; a substitute that the encoding lacks is refused."""
    arguments = (
        *("run", things, "--table", "euro", "--encoding", "latin-1", "--encoder", encoder),
        *("--no-header", "--to", "out"),
    )
    refused = unloader(*arguments)
    assert refused.returncode == 6
    assert "U+20AC" in refused.stderr
    assert "--substitute" in refused.stderr
    wrong = unloader(*arguments, "--substitute", "₠")
    assert wrong.returncode == 2
    assert "--substitute" in wrong.stderr
    ran = unloader(*arguments, "--substitute", r"\xa4")
    assert ran.returncode == 0, ran.stderr
    assert only(tmp_path / "out") == b'"10 \xa4, or 9"\n'
