"""Every way to write, as one of several outputs: each is what a run of it alone writes."""

from __future__ import annotations

import base64
import os
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow.parquet as pq
import pytest
from encrypted_files.age import decrypted, new_keys
from long_tests import OTHER_ROUTES
from processes import command
from processes.breaking import kill_after

if TYPE_CHECKING:
    from conftest import PostgresServer
    from oracle.leg import OracleLeg

FILTER = "id % 3 = 1 AND day > DATE '2020-06-01'"
WAYS: dict[str, str] = {
    "one-file": "--file-per table --compression zstd",
    "sized-gzip": "--file-size 20kB --compression gzip",
    "sqlldr": "--dialect sqlldr-var --exclude ts",
    "postgres": "--dialect postgres",
    "mysql": "--dialect mysql --compression lz4",
    "latin": "--encoding latin-1 --file-name {table}-{unit}{part}.{ext}",
    "fixed": "--fixed --null NUL --width name=20,note=20,big=45,price=30,bin=20",
    "sized-parquet": "--format parquet --file-size 60kB --row-group-rows 500",
    "snappy": "--format parquet --compression snappy --no-dictionary",
    "checksum": "--checksum sha256 --columns day,id",
    "changed": "--format parquet --constant k=v --rename note=memo --mask name=redact,value=-",
}
FEW = ("one-file", "fixed", "changed")
FLAGS = ("--fixed", "--no-dictionary")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a table with columns that formats have in different forms."""
    path = tmp_path_factory.mktemp("duck") / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE TABLE orders AS SELECT i::INT AS id, 'name é ' || (i % 97) AS name, "
            "(i % 1000) / 7.0 AS price, (i * 37.5)::DECIMAL(12, 2) AS amount, "
            "(i::HUGEINT * 1000000007 * 1000000007)::DECIMAL(38, 5) AS big, "
            "DATE '2020-01-01' + (i % 900)::INT AS day, encode('b' || i) AS bin, "
            "TIMESTAMP '2020-01-01 00:00:00.123456' + INTERVAL (i) SECOND AS ts, i % 2 = 0 AS flag, "
            "CASE WHEN i % 11 = 0 THEN NULL WHEN i % 13 = 0 THEN '' "
            "ELSE 'x\"y,' || chr(10) || i END AS note FROM range(20000) t(i)"
        )
    return f"duckdb://{path}"


def as_route(name: str, to: Path, options: str, condition: str) -> str:
    words, found = shlex.split(options), [f'to="{to}"']
    while words:
        word = words.pop(0)
        key, value = word.removeprefix("--"), "true"
        if word.startswith("--no-"):
            key, value = word.removeprefix("--no-"), "false"
        elif word not in FLAGS:
            value = words.pop(0)
        found.append(f'{key}="{value}"')
    if condition:
        found.append(f'filter="{condition}"')
    return f"{name}:{','.join(found)}"


def files_of(directory: Path) -> dict[str, bytes]:
    """Return the data files of a directory."""
    return {each.name: each.read_bytes() for each in directory.iterdir() if each.name[0] != "_"}


def check_equal(
    line: tuple[str, ...],
    ways: Mapping[str, tuple[str, str]],
    to: Path,
    env: dict[str, str] | None = None,
) -> None:
    """Write all ways in one run, then each by its own run; compare the files.

    Args:
        line: The run without its outputs.
        ways: The options and the filter of each.
        to: A directory for all files.
        env: Further variables.
    """
    routes = [
        part
        for name, (options, condition) in ways.items()
        for part in ("--route", as_route(name, to / "routes" / name, options, condition))
    ]
    command.run(*line, *routes, env=env)
    for name, (options, condition) in ways.items():
        own = to / "own" / name
        filtered = ("--filter", condition) if condition else ()
        command.run(*line, "--to", str(own), *shlex.split(options), *filtered, env=env)
        assert files_of(own), name
        assert files_of(to / "routes" / name) == files_of(own), name


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.parametrize(
    ("ways", "condition"),
    [(FEW, FILTER), pytest.param(tuple(WAYS), FILTER, marks=pytest.mark.long(OTHER_ROUTES))],
    ids=["few", "all"],
)
def test_every_way_to_write_is_that_of_its_own_run(
    source: str, tmp_path: Path, ways: tuple[str, ...], condition: str
) -> None:
    """Of one scan; the values of every file are read back, too."""
    line = ("run", source, "--table", "orders", "--unit-bytes", "500kB", "--parallelism", "1")
    asked = {name: (WAYS[name], condition) for name in ways}
    check_equal((*line, "--verify", "full"), asked, tmp_path)


def keys_in(home: Path, *names: str) -> Path:
    """Make a directory with keys of Parquet that only its owner can read."""
    home.mkdir(mode=0o700)
    for name in names:
        path = home / name
        path.write_text(base64.b64encode(os.urandom(32)).decode())
        path.chmod(0o600)
    return home


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.parametrize("way", ["cron", "resume with a key"])
def test_a_killed_run_goes_on_with_the_key_of_each_route(
    source: str, tmp_path: Path, way: str
) -> None:
    """A key that is given again belongs to the routes that had it."""
    home, to = keys_in(tmp_path / "keys", "one", "two"), tmp_path / "out"
    line = ("run", source, "--table", "orders", "--unit-bytes", "500kB", "--parallelism", "1")
    line = (*line, "--verify", "full")
    for name in ("one", "two"):
        options = f"--format parquet --parquet-key-file {home}/{name}"
        line = (*line, "--route", as_route(name, to / name, options, ""))
    staged = kill_after(2, to / "two", *line, files=2)
    given = ("--parquet-key-file", f"{home}/two") if way == "resume with a key" else ()
    command.run(
        *(*line, "--resume-or-start") if way == "cron" else ("resume", str(to / "one"), *given)
    )
    for name in ("one", "two"):
        key = ("--parquet-key-file", str(home / name))
        command.run("verify", str(to / name), "--level", "full", *key)
        attempts = {u["id"]: u["attempts"] for u in command.manifest_of(to / name)["units"]}
        assert all(attempts[unit] == 1 for unit in staged)


@pytest.mark.long(OTHER_ROUTES)
def test_routes_are_encrypted_by_keys_of_their_own(source: str, tmp_path: Path) -> None:
    """A key of Parquet, recipients of age, and nothing: each as its own run would be."""
    keys = new_keys()
    home = keys_in(tmp_path / "keys", "one", "two")
    (home / "identity").write_text(f"{keys.private}\n")
    (home / "identity").chmod(0o600)
    to = tmp_path / "out"
    parquet = "--format parquet --parquet-key-file {}"
    routes = {
        "one": (parquet.format(home / "one"), FILTER),
        "two": (parquet.format(home / "two"), ""),
        "age": (f"--encrypt-to {keys.public} --decrypt-with {home}/identity", FILTER),
        "clear": ("", FILTER),
    }
    line = ("run", source, "--table", "orders", "--split", "none", "--verify", "full")
    command.run(
        *line,
        *(
            part
            for name, (options, condition) in routes.items()
            for part in ("--route", as_route(name, to / name, options, condition))
        ),
    )
    clear = b"".join(files_of(to / "clear").values())
    (secret,) = (to / "age").glob("orders.*")
    assert decrypted(secret.read_bytes(), keys.private) == clear
    for name in ("one", "two"):
        command.run(
            "verify", str(to / name), "--level", "full", "--parquet-key-file", str(home / name)
        )
        (file,) = (to / name).glob("*.parquet")
        assert file.read_bytes()[:4] == b"PARE"
    other = ("--parquet-key-file", str(home / "two"))
    command.error_of("verify", str(to / "one"), "--level", "full", *other, status=3)


LARGE = {
    "csv": ("", ""),
    "without": ("--columns id,note", "id <> 3"),
    "small": ("", "id <> 2"),
    "parquet": ("--format parquet", "id < 4"),
    "both": ("--format parquet --columns doc,id --row-group-rows 2", ""),
    "changed": ("--rename doc=text --mask id=redact,value=0", "id < 4"),
}


def large_rows() -> Iterator[tuple[int, str, str]]:
    for number in range(1, 6):
        text = 'Zoë "q" line\n' * (250_000 if number in (2, 4) else number)
        yield number, text, f"n{number}"


@pytest.mark.long("memory and large rows")
def test_large_values_go_to_every_route(postgres: PostgresServer, tmp_path: Path) -> None:
    """A value that does not fit memory is read for each route that has it, or by none."""
    url = postgres.database("large_routes")
    postgres.run("CREATE TABLE w (id int, doc text, note text)", url=url)
    for row in large_rows():
        postgres.run(f"INSERT INTO w VALUES {row!r}".replace("\\n", "\n"), url=url)
    line = ("run", url, "--table", "w", "--fetch-memory", "1MiB", "--split", "none")
    check_equal((*line, "--verify", "full"), LARGE, tmp_path)
    for name in ("parquet", "both"):
        (file,) = (tmp_path / "routes" / name).glob("*.parquet")
        found: list[Any] = pq.read_table(file, columns=["id", "doc"]).to_pylist()
        known = {number: text for number, text, _ in large_rows()}
        assert all(row["doc"] == known[row["id"]] for row in found)


@pytest.mark.long("memory and large rows")
def test_large_objects_of_oracle_go_to_every_route(oracle: OracleLeg, tmp_path: Path) -> None:
    """They are read piece by piece, once for each route."""
    from oracle_server.model import Column, Type

    columns = (
        Column(name="ID", type=Type(name="NUMBER", precision=9, scale=0)),
        Column(name="DOC", type=Type(name="CLOB")),
        Column(name="NOTE", type=Type(name="VARCHAR2", length=20)),
    )
    oracle.create("LARGE_ROUTES", columns)
    oracle.load("LARGE_ROUTES", columns, list(large_rows()))
    line = ("run", oracle.url, "--table", "LARGE_ROUTES", "--fetch-memory", "1MiB")
    few = {name: LARGE[name] for name in ("csv", "small", "parquet")}
    check_equal((*line, "--verify", "full"), few, tmp_path, env=oracle.environment)
