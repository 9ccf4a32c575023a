"""`--lob-files`: a program that knows only LOB location specifiers reads every value back."""

from __future__ import annotations

import csv
import json
import random
import sqlite3
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from object_stores.s3_server import S3Server
from oracle_server.database import Database
from oracle_server.model import Column, Type
from oracle_server.server import OracleServer
from processes import command
from processes.breaking import kill_after

Row = tuple[int, bytes | None, str | None]
_WORDS = "häßlich, \"quoted\"\n€ 💾 '' "


def rows() -> list[Row]:
    """Return hostile rows: NULL, empty, bytes of any value, and values longer than a batch."""
    source = random.Random(7)
    found: list[Row] = []
    for number in range(3_000):
        data = (None, b"", source.randbytes(source.choice((1, 90, 4_000))))[min(number % 5, 2)]
        text = (None, "", _WORDS * source.randint(1, 60))[min(number % 4, 2)]
        found.append((number, data, text))
    found.insert(1_500, (9_001, source.randbytes(9_000_000), _WORDS * 90_000))
    found.append((9_002, None, "end"))
    return found


ROWS = rows()


def _duckdb(path: Path) -> str:
    with duckdb.connect(str(path)) as session:
        session.execute('CREATE TABLE t (id INTEGER, "p.h/o,to" BLOB, doc VARCHAR)')
        session.executemany("INSERT INTO t VALUES (?, ?, ?)", ROWS)
    return f"duckdb://{path}"


def _sqlite(path: Path) -> str:
    with sqlite3.connect(path) as session:
        session.execute('CREATE TABLE t (id INTEGER, "p.h/o,to" BLOB, doc TEXT)')
        session.executemany("INSERT INTO t VALUES (?, ?, ?)", ROWS)
    session.close()
    return f"sqlite://{path}"


def _postgres(server: Any, path: Path) -> str:
    """Load the rows; `obj` has an OID of a large object with the bytes of the second column."""
    url = server.database("lobs")
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(
            (number, "" if data is None else f"\\x{data.hex()}", _quoted(text))
            for number, data, text in ROWS
        )
    server.run(
        'CREATE TABLE t (id int, "p.h/o,to" bytea, doc text, obj oid);\n'
        f"\\copy t (id, \"p.h/o,to\", doc) FROM '{path}' (FORMAT csv, NULL '', FORCE_NULL (doc))\n"
        "UPDATE t SET doc = replace(doc, '<empty>', '');"
        'UPDATE t SET obj = lo_from_bytea(0, "p.h/o,to") WHERE "p.h/o,to" IS NOT NULL;',
        url=url,
    )
    return url


def _quoted(text: str | None) -> str:
    return "" if text is None else text or "<empty>"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory, postgres: Any) -> Callable[[str], str]:
    """Return the URL of a database of a kind that has the rows."""
    directory = tmp_path_factory.mktemp("lobs")
    known: dict[str, str] = {}

    def of(kind: str) -> str:
        if kind not in known:
            path = directory / kind
            known[kind] = (
                _postgres(postgres, path)
                if kind == "postgres"
                else {"duckdb": _duckdb, "sqlite": _sqlite}[kind](path)
            )
        return known[kind]

    return of


def value_at(place: str | None, files: Mapping[str, bytes]) -> bytes | None:
    """Return the value at a specifier: NAME.OFFSET.LENGTH/, the offset from 1, -1 for NULL."""
    if place is None:
        return None
    assert place[-1] == "/"
    stem, extension, offset, length = place[:-1].split(".")
    if length == "-1":
        return None
    start = int(offset) - 1
    found = files[f"{stem}.{extension}"][start : start + int(length)]
    assert len(found) == int(length)
    return found


def read_back(
    files: Mapping[str, bytes], directory: Path, columns: tuple[str, ...] = ("p.h/o,to", "doc")
) -> list[tuple[int | bytes | None, ...]]:
    """Return the rows of a run by `id`, their values read at their places."""
    csv.field_size_limit(sys.maxsize)
    found: list[tuple[int | bytes | None, ...]] = []
    for name, data in files.items():
        if name.endswith(".csv"):
            lines = data.decode().splitlines(keepends=True)
            for row in csv.DictReader(lines):
                found.append((int(row["id"]), *(value_at(row[each], files) for each in columns)))
        elif name.endswith(".parquet"):
            for row in pq.read_table(directory / name).to_pylist():
                found.append((row["id"], *(value_at(row[each], files) for each in columns)))
    return sorted(found, key=lambda row: row[:1])


EXPECTED = sorted(
    (number, data, None if text is None else text.encode()) for number, data, text in ROWS
)


def on_disk(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name[0] != "_"}


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("duckdb", ("--format", "csv", "--file-per", "table", "--unit-bytes", "1MB")),
        (
            "duckdb",
            ("--format", "parquet", "--file-name", "x-{unit}{part}.parquet", "--file-size", "9KB"),
        ),
        ("sqlite", ("--format", "csv", "--compression", "none")),
        ("postgres", ("--format", "csv", "--dialect", "postgres", "--header")),
        ("postgres", ("--format", "parquet", "--unit-bytes", "1MB")),
    ],
)
def test_every_value_is_read_back(
    url: Callable[[str], str], tmp_path: Path, kind: str, options: tuple[str, ...]
) -> None:
    """NULL differs from an empty value, and the manifest has size and checksum of each file."""
    to = tmp_path / "out"
    names = ("--lob-files", '"p.h/o,to",doc')
    source = ("run", url(kind), "--table", "t", "--columns", 'id,"p.h/o,to",doc')
    command.run(*source, "--to", str(to), *names, *options, "--verify", "full")
    assert read_back(on_disk(to), to) == EXPECTED
    manifest = command.manifest_of(to)
    packed = [file for unit in manifest["units"] for file in unit["files"] if "column" in file]
    assert {file["column"] for file in packed} == {"p.h/o,to", "doc"}
    assert all((to / file["path"]).stat().st_size == file["bytes"] for file in packed)
    assert manifest["totals"]["rows"] == len(ROWS)
    command.run("verify", str(to), "--level", "full")
    damaged = to / max(packed, key=lambda file: file["bytes"])["path"]
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    assert damaged.name in command.error_of("verify", str(to), "--level", "count", status=8)


def test_large_objects_of_postgresql(
    url: Callable[[str], str], postgres: Any, tmp_path: Path
) -> None:
    """A column of OIDs becomes the objects; an OID without an object is refused by column."""
    to = tmp_path / "out"
    source = ("run", url("postgres"), "--columns", "id,obj", "--lob-files", "obj")
    command.run(*source, "--table", "t", "--to", str(to))
    expected = sorted((number, data) for number, data, _ in ROWS)
    assert read_back(on_disk(to), to, ("obj",)) == expected
    postgres.run("CREATE TABLE gone AS SELECT 1 AS id, 4000000000::oid AS obj", url=url("postgres"))
    error = command.error_of(*source, "--table", "gone", "--to", str(tmp_path / "no"), status=4)
    assert "column obj: " in error
    assert "4000000000" in error


def test_lobs_of_oracle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small LOBs come with their rows, long ones in pieces by locator."""
    monkeypatch.setenv("UNLOADER_PASSWORD", "tiger")
    kinds = {"ID": Type(name="NUMBER", precision=9, scale=0), "C": Type(name="CLOB")}
    kinds |= {"N": Type(name="NCLOB"), "B": Type(name="BLOB"), "F": Type(name="BFILE")}
    texts = (None, "", "small ß€", _WORDS * 40_000, "end")
    rows = [
        (number, text, text, None if text is None else text.encode()[::-1], None)
        for number, text in enumerate(texts)
    ]
    database = Database()
    database.add_user("SCOTT", "tiger")
    columns = tuple(Column(name=name, type=kind) for name, kind in kinds.items())
    with OracleServer(database) as server:
        database.create_table("SCOTT", "T", columns=columns, rows=rows)
        run = ("run", server.url("scott"), "--table", "T", "--to", str(tmp_path / "out"))
        assert "column F" in command.error_of(*run, "--lob-files", "F", status=4)
        command.run(*run, "--header", "--exclude", "F", "--lob-files", "c,n,b", "--verify", "full")
    files = on_disk(tmp_path / "out")
    for row in csv.DictReader(files["T.0001.csv"].decode().splitlines()):
        (text,) = {value_at(row[name], files) for name in ("C", "N")}
        expected = texts[int(row["ID"])]
        assert text == (None if expected is None else expected.encode())
        assert value_at(row["B"], files) == (None if text is None else text[::-1])


@pytest.mark.parametrize("library", [None, ""], ids=["native", "plain"])
def test_other_columns_are_as_without_packed_files(
    postgres: Any, tmp_path: Path, library: str | None
) -> None:
    """COPY's binary form, which brings the values, has every other type as its text."""
    url = postgres.database("lobs_beside")
    postgres.run(
        "CREATE TYPE pair AS (a int, b text);"
        "CREATE TABLE t (id int, n numeric, m money, d date, ts timestamptz, c char(5), b boolean,"
        " f float8, arr text[], p pair, j jsonb, bits bytea, doc text);"
        "INSERT INTO t SELECT i, i / 7.0, 1.5, '2026-01-31', '2026-01-31 12:00+02', 'ab', i % 2 = 0,"
        " i / 3.0, ARRAY['x,\"', NULL], row(1, 'é')::pair, '{\"k\": [1]}', '\\x00ff', repeat('ä', i)"
        " FROM generate_series(1, 50) i;"
        "INSERT INTO t (id, d, f, p) VALUES (51, 'infinity', 'NaN', row(NULL, NULL)::pair);"
        "INSERT INTO t (id) VALUES (52);"
        "INSERT INTO t (id, c, doc, bits) VALUES (53, '', '', ''), (54, '\"', 'end', '\\x22');",
        url=url,
    )
    env = {} if library is None else {"UNLOADER_NATIVE_COPY_LIBRARY": library}
    run = ("run", url, "--table", "t", "--header", "--parallelism", "1", "--verify", "count")
    plain, packed = tmp_path / "plain", tmp_path / "packed"
    command.run(*run, "--to", str(plain), "--exclude", "bits,doc", env=env)
    command.run(*run, "--to", str(packed), "--lob-files", "bits,doc", env=env)
    files = on_disk(packed)
    lines, found = (
        list(csv.reader(data.decode().splitlines(keepends=True)))
        for data in (on_disk(plain)["t.0001.csv"], files["t.0001.csv"])
    )
    assert [row[:-2] for row in found] == lines
    assert value_at(found[54][-2], files) == b'"'
    assert value_at(found[50][-1], files) == ("ä" * 50).encode()


def test_texts_have_the_encoding_of_the_rows(tmp_path: Path) -> None:
    """SQL*Loader reads both with one character set; a character without a code is refused."""
    path = tmp_path / "t.db"
    with duckdb.connect(str(path)) as session:
        session.execute("CREATE TABLE t AS SELECT 1 AS id, 'Müller' AS doc")
    run = ("run", f"duckdb://{path}", "--table", "t", "--lob-files", "doc", "--encoding", "latin-1")
    command.run(*run, "--to", str(tmp_path / "out"))
    assert (tmp_path / "out" / "t_0001_doc.lob").read_bytes() == "Müller".encode("latin-1")
    with duckdb.connect(str(path)) as session:
        session.execute("INSERT INTO t VALUES (2, '€')")
    error = command.error_of(*run, "--to", str(tmp_path / "no"), status=6)
    assert "column doc" in error
    assert "U+20AC" in error
    assert command.final_names(tmp_path / "no") == []
    with duckdb.connect(str(path)) as session:
        session.execute("CREATE TABLE tü AS SELECT 'x' AS doc")
    # A name with a replacement would be the name of no file.
    run = ("run", f"duckdb://{path}", "--table", "tü", "--lob-files", "doc", "--substitute", "?")
    error = command.error_of(*run, "--encoding", "ascii", "--to", str(tmp_path / "no"), status=6)
    assert "U+00FC" in error


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_codecs_are_measured_without_the_values(url: Callable[[str], str], form: str) -> None:
    """No codec compresses the values, so the sample has their places."""
    source = ("codecs", url("duckdb"), "--table", "t", "--format", form, "--json")
    inline = json.loads(command.run(*source))
    packed = json.loads(command.run(*source, "--lob-files", '"p.h/o,to",doc'))
    assert inline["sample"]["rows"] == packed["sample"]["rows"]
    assert inline["sample"]["bytes"] > 10 * packed["sample"]["bytes"]
    assert 0 < packed["sample"]["bytes"] < 100 * packed["sample"]["rows"]


def test_a_killed_run_is_continued(url: Callable[[str], str], tmp_path: Path) -> None:
    """Nothing has a final name before, and the files are equal to the files of one run."""
    to, whole = tmp_path / "out", tmp_path / "whole"
    run = ("run", url("sqlite"), "--table", "t", "--lob-files", "doc", "--unit-bytes", "1MB")
    run = (*run, "--parallelism", "1")
    staged = kill_after(2, to, *run, "--to", str(to), files=2)
    assert len(staged) >= 2
    command.run("resume", str(to))
    command.run(*run, "--to", str(whole))
    assert on_disk(to) == on_disk(whole)
    assert len(on_disk(to)) > 4


@pytest.mark.long("runs into object stores")
def test_an_object_store_has_the_same_files(
    s3: S3Server, url: Callable[[str], str], tmp_path: Path
) -> None:
    """Uploads of several parts are completed together with the rows, and none is left."""
    run = ("run", url("postgres"), "--table", "t", "--lob-files", '"p.h/o,to"')
    run = (*run, "--unit-bytes", "1MB")
    command.run(*run, "--to", s3.place("lobs"))
    command.run(*run, "--to", str(tmp_path / "out"))
    found = {name: data for name, data in s3.objects("lobs/").items() if name[0] != "_"}
    assert found == on_disk(tmp_path / "out")
    assert s3.uploads("lobs/") == []
    command.run("verify", s3.place("lobs"), "--level", "count")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--lob-files", "id"), "column id has the type"),
        (("--lob-files", "nothing"), "unknown column 'nothing'"),
        (("--lob-files", "doc,doc"), "names 'doc' twice"),
        (("--lob-files", "doc", "--verify", "source"), "--verify source"),
        (("--lob-files", "doc", "--encrypt-to", "age1" + "q" * 58), "not encrypted"),
    ],
)
def test_what_cannot_be_packed_is_refused(
    url: Callable[[str], str], tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    """Before a row is read; encrypted rows never leave their values in the open."""
    run = ("run", url("duckdb"), "--table", "t", "--to", str(tmp_path / "out"))
    assert words in command.error_of(*run, *options, status=2)


def test_a_stream_has_no_place_for_other_files(url: Callable[[str], str]) -> None:
    run = ("run", url("duckdb"), "--table", "t", "--to", "-", "--lob-files", "doc")
    assert "--lob-files does not apply" in command.error_of(*run, status=2)
