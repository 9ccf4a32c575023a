"""`--lob-layout files`: a file for each value, named by key columns; other programs read them."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb
import pyarrow.parquet as pq
import pytest
from object_stores.s3_server import S3Server
from processes import command
from processes.breaking import kill_after

KEYS = [
    *("a", "A", ".", "..", "", "é", "e\u0301", "x/y", "../../up", "n\0ul", "t\tab", "%41", "%null"),
    *("z" * 300, "." * 400, "ü" * 100, "-rf", "_index.txt", "a b", '"q"\n', "\u202e", None),
]
Row = tuple[int, str | None, bytes | None]
ROWS: list[Row] = [
    (number, key, (None, b"", b"\0\xff" * 3_000, b"x" * 90)[number % 4])
    for number, key in enumerate(KEYS)
]
"""The last key is NULL, of an empty value."""


def database(path: Path, rows: Iterable[Row] | str) -> str:
    """Make a database with rows, or with the rows of a query, and return its URL."""
    with duckdb.connect(str(path)) as session:
        session.execute("CREATE OR REPLACE TABLE t (id INTEGER, k VARCHAR, p BLOB)")
        if isinstance(rows, str):
            session.execute(f"INSERT INTO t {rows}")
        else:
            session.executemany("INSERT INTO t VALUES (?, ?, ?)", list(rows))
    return f"duckdb://{path}"


def numbered(count: int, value: str = "repeat(i::VARCHAR, 50)::BLOB", key: str = "'k' || i") -> str:
    return f"SELECT i, {key}, {value} FROM range({count}) r(i)"


def options(url: str, to: Path | str, *more: str) -> tuple[str, ...]:
    files = ("--lob-files", "p", "--lob-layout", "files")
    return ("run", url, "--table", "t", "--to", str(to), *files, *more)


def tree(directory: Path) -> dict[str, bytes]:
    """Return everything in a directory except the manifest, by relative path."""
    paths = (each for each in directory.rglob("*") if each.is_file())
    found = {str(each.relative_to(directory)): each.read_bytes() for each in paths}
    return {name: data for name, data in found.items() if name[0] != "_"}


def key_of(path: str) -> str | None:
    """Return the key in a path by the rules of the page, read by another program's decoder."""
    name = path.split("/", 2)[2].removesuffix(".bin").replace("%/%", "")
    return {"%null": None, "%empty": ""}.get(name, unquote(name, errors="strict"))


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_any_key_names_a_file(tmp_path: Path, form: str) -> None:
    """Each name leads back to its key and stays in its folder; `sha256sum` finds all files."""
    to = tmp_path / "out"
    run = options(database(tmp_path / "t.db", ROWS), to, "--lob-name", "{K}.bin")
    command.run(*run, "--format", form, "--checksum", "sha256", "--verify", "full")
    if form == "csv":
        with (to / "t.0001.csv").open(newline="", encoding="utf-8") as file:
            rows: list[dict[str, Any]] = list(csv.DictReader(file))
    else:
        rows = pq.read_table(to / "t.0001.parquet").to_pylist()
    files = tree(to)
    for row, (number, key, value) in zip(rows, ROWS, strict=True):
        assert int(row["id"]) == number
        if value is None:
            assert row["p"] in ("", None)
        else:
            assert key_of(row["p"]) == key
            assert files.pop(row["p"]) == value
    index = files.pop("t_0001_p/_index.txt")
    assert list(files) == [f"t.0001.{form}"]
    check = "cut -d' ' -f1,3 _index.txt | sed 's/ /  /' | sha256sum --check --strict --quiet"
    subprocess.run(check, shell=True, cwd=to / "t_0001_p", check=True)
    assert sum(len(value) for _, _, value in ROWS if value) == sum(
        int(line.split()[1]) for line in index.splitlines()
    )


def test_verify_finds_a_changed_a_missing_and_an_added_value(tmp_path: Path) -> None:
    to = tmp_path / "out"
    command.run(*options(database(tmp_path / "t.db", numbered(30)), to))
    value = to / "t_0001_p" / "0000" / "00000007.lob"
    data = value.read_bytes()
    assert data == b"6" * 50
    command.run("verify", str(to), "--strict")
    added = value.with_name("added")
    added.touch()
    assert json.loads(command.run("verify", str(to), "--json"))["extra_files"] == [str(added)]
    assert str(added) in command.error_of("verify", str(to), "--strict", status=8)
    value.write_bytes(b"7" + data[1:])
    assert value.name in command.error_of("verify", str(to), status=8)
    value.unlink()
    assert value.name in command.error_of("verify", str(to), status=8)


def test_two_rows_with_one_name_end_the_run(tmp_path: Path) -> None:
    """Whether they are in one unit or in two; nothing has a final name then."""
    url = database(tmp_path / "one.db", numbered(900, key="'k' || i % 899"))
    name = ("--lob-name", "{k}")
    error = command.error_of(*options(url, tmp_path / "out", *name), status=6)
    assert "column p" in error
    assert "'k0'" in error
    few = "CASE WHEN i IN (5, 299000) THEN 'x'::BLOB END"
    query = numbered(300_000, few, "CASE WHEN i IN (5, 299000) THEN 'same' ELSE 'k' || i END")
    url = database(tmp_path / "two.db", query)
    run = options(url, tmp_path / "out", *name, "--unit-bytes", "500KB", "--overwrite")
    error = command.error_of(*run, status=6)
    assert "'same'" in error
    assert command.final_names(tmp_path / "out") == []


def test_a_killed_run_is_continued(tmp_path: Path) -> None:
    """The files are equal to the files of one run, and an earlier run is replaced as a whole."""
    url = database(tmp_path / "t.db", numbered(200))
    to, whole = tmp_path / "out", tmp_path / "whole"
    command.run(*options(url, to))
    assert len(tree(to)) == 202
    few = "CASE WHEN i % 3000 = 0 THEN 'x'::BLOB END"
    database(tmp_path / "t.db", numbered(300_000, few))
    more = ("--lob-name", "{id}", "--unit-bytes", "500KB", "--parallelism", "1")
    run = options(url, to, *more, "--overwrite")
    kill_after(1, to, *run, files=43)
    assert len(tree(to)) == 202
    command.run("resume", str(to))
    command.run(*options(url, whole, *more))
    assert tree(to) == tree(whole)
    assert sum(name.endswith("_index.txt") for name in tree(to)) > 1
    assert not (to / "_run").exists()


def test_old_runs_are_removed_with_their_folders(tmp_path: Path) -> None:
    """A run whose folder has a file of another program stays."""
    url = database(tmp_path / "t.db", numbered(20))
    run = options(url, tmp_path / "{run_id}", "--keep", "1")
    command.run(*run)
    (first,) = tmp_path.glob("2*")
    (first / "t_0001_p" / "0000" / "mine").touch()
    command.run(*run)
    assert len(list(tmp_path.glob("2*"))) == 2
    (first / "t_0001_p" / "0000" / "mine").unlink()
    command.run(*run)
    assert len(list(tmp_path.glob("2*"))) == 1
    assert not first.exists()


def test_large_objects_come_in_pieces(postgres: Any, tmp_path: Path) -> None:
    """Also from PostgreSQL, where the values of other columns are text; modes reach all files."""
    url = postgres.database("lob_folders")
    sql = (
        "CREATE TABLE t (id numeric(9), d date, p oid);"
        "INSERT INTO t SELECT i, '2026-01-31', lo_from_bytea(0, convert_to(repeat('ab', i), 'UTF8'))"
        " FROM unnest(ARRAY[0, 1, 3000000]) i;"
    )
    postgres.run(sql, url=url)
    to = tmp_path / "out"
    command.run(*options(url, to, "--lob-name", "{d}/{id}.txt", "--mode", "640"))
    found = {name.split("/", 2)[2]: data for name, data in tree(to).items() if "2026" in name}
    assert found.pop("2026-01-31/3000000.txt") == b"ab" * 3_000_000
    assert found == {"2026-01-31/0.txt": b"", "2026-01-31/1.txt": b"ab"}
    assert {each.stat().st_mode & 0o777 for each in to.rglob("*.txt")} == {0o640}


@pytest.mark.long("runs into object stores")
def test_an_object_store_has_the_same_files(s3: S3Server, tmp_path: Path) -> None:
    """A value is an object. A run that fails publishes none, a later run replaces all of them."""
    url, place = database(tmp_path / "t.db", numbered(60, key="'k' || i % 59")), s3.place("folders")
    name = ("--lob-name", "{k}/x.bin")
    assert "k0" in command.error_of(*options(url, place, *name), status=6)
    assert {name.partition("/")[0] for name in s3.objects("folders/")} == {"_run"}
    for rows in (ROWS, numbered(9)):
        database(tmp_path / "t.db", rows)
        command.run(*options(url, place, *name, "--overwrite"))
        command.run(*options(url, tmp_path / "out", *name, "--overwrite"))
        found = {name: data for name, data in s3.objects("folders/").items() if name[0] != "_"}
        assert found == tree(tmp_path / "out")
        command.run("verify", place)


DIES_WHILE_COPYING = """
import os, sys
from unloader.cli import main
from writers.objects.bucket import Bucket
copy, left = Bucket.copy, [12]
def last(*arguments):
    left.append(left.pop() - 1)
    return copy(*arguments) if left[0] else os.kill(os.getpid(), 9)
Bucket.copy = last
main()
"""


@pytest.mark.long("runs into object stores")
def test_a_publication_that_dies_between_objects_is_completed(s3: S3Server, tmp_path: Path) -> None:
    """All objects of the new run are there then, and none of the old run or of its staging."""
    url, place = database(tmp_path / "t.db", numbered(40)), s3.place("dead")
    command.run(*options(url, place))
    database(tmp_path / "t.db", numbered(30, "'y'::BLOB"))
    run = (sys.executable, "-c", DIES_WHILE_COPYING, *options(url, place, "--overwrite"))
    assert subprocess.run(run, check=False, capture_output=True).returncode == -signal.SIGKILL
    assert 0 < list(s3.objects("dead/t_0001_p").values()).count(b"y") < 30
    command.run("resume", place)
    command.run(*options(url, tmp_path / "out"))
    found = s3.objects("dead/")
    assert found.pop("_manifest.json")
    assert found == tree(tmp_path / "out")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--lob-name", "x.jpg"), "needs the name of a key column"),
        (("--lob-name", "../{id}"), "needs the name of a key column"),
        (("--lob-name", "{id}%"), "has a character"),
        (("--lob-name", "{nothing}"), "unknown column 'nothing'"),
        (("--lob-name", "{p}"), "column p in --lob-name"),
        (("--lob-name", "{id}", "--lob-layout", "packed"), "--lob-name"),
    ],
)
def test_names_that_cannot_be_made_are_refused(
    tmp_path: Path, more: tuple[str, ...], words: str
) -> None:
    url = database(tmp_path / "t.db", numbered(1))
    assert words in command.error_of(*options(url, tmp_path / "out", *more), status=2)
