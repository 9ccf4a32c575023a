"""Servers and files for the programs that load the written files."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import debian
import duckdb
import pyarrow as pa
import pytest
from encoders.hostile_texts import hostile_texts
from loading.programs import Program, Row

from writers.text.dialects import DIALECTS

SWITCH = "UNLOADER_TEST_MARIADB"
"""Set to `off` in the environment, MariaDB is neither installed nor started."""


@pytest.fixture(scope="session")
def place() -> Iterator[Path]:
    """A directory that the users of servers can read."""
    made = Path(tempfile.mkdtemp(prefix="unloader-load-", dir="/tmp"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="session")
def rows() -> list[Row]:
    """Numbered rows of two texts, each hostile one in both places, and nulls beside texts."""
    found: dict[str, None] = {}
    for name in ("rfc4180", "mysql", "tsv"):
        found.update(dict.fromkeys(hostile_texts(DIALECTS[name])))
    # PostgreSQL has no U+0000, and the dialect refuses it.
    texts = [text for text in (*found, "a\n\\.\nb") if "\0" not in text]
    pairs: list[tuple[str | None, str | None]] = list(zip(texts, reversed(texts), strict=True))
    pairs += [(None, "x"), ("y", None), (None, None), ("", None), (None, "")]
    return [(number, *pair) for number, pair in enumerate(pairs)]


@pytest.fixture(scope="session")
def source(place: Path, rows: list[Row]) -> str:
    """The URL of a database with these rows in the table `items`."""
    numbers, first, second = zip(*rows, strict=True)
    table = pa.table({"id": pa.array(numbers, pa.int32()), "a": first, "b": second})
    with duckdb.connect(str(place / "items.duckdb")) as connection:
        connection.register("given", table)
        connection.execute("CREATE TABLE items AS FROM given ORDER BY id")
    return f"duckdb://{place}/items.duckdb"


@pytest.fixture(scope="session")
def psql(postgres: object) -> Program:
    """A database of PostgreSQL and its own psql."""
    url = postgres.database("loaders")  # type: ignore[attr-defined]
    directory = str(Path(postgres.psql).parent)  # type: ignore[attr-defined]
    host = url.partition("host=")[2].partition("&")[0]
    texts = ", ".join(
        f"CASE WHEN {each} IS NULL THEN 'NULL' ELSE encode(convert_to({each}, 'UTF8'), 'hex') END"
        for each in "ab"
    )
    make = "DROP TABLE IF EXISTS items; CREATE TABLE items (id int, a text, b text)"
    return Program(
        environment={
            "PATH": f"{directory}:{os.environ['PATH']}",
            "PGHOST": host,
            "PGUSER": "postgres",
            "PGDATABASE": "loaders",
            "PGOPTIONS": "-c client_min_messages=warning",
        },
        create=("psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-c", make),
        rows=("psql", "-X", "-q", "-A", "-t", "-F", "\t", "-c", f"SELECT id, {texts} FROM items"),
    )


@pytest.fixture(scope="session")
def mariadb(place: Path) -> Iterator[Program]:
    """A server of MariaDB for these tests alone, with its clients."""
    try:
        debian.prepared(
            ("mariadbd", "mariadb", "mariadb-import", "mariadb-install-db"),
            ("mariadb-server", "mariadb-client"),
            switch=SWITCH,
        )
    except debian.Missing as missing:
        pytest.skip(f"no MariaDB: {missing}")
    home = place / "mariadb"
    home.mkdir()
    user = ("--user=mysql",) if os.geteuid() == 0 else ()
    if user:
        shutil.chown(home, "mysql")
    socket, data = home / "s.sock", home / "data"
    # A file in the user's home, since Debian's own files name another socket.
    (home / ".my.cnf").write_text(f"[client]\nsocket = {socket}\nuser = root\n")
    options = ("--no-defaults", *user, f"--datadir={data}")
    subprocess.run(
        ("mariadb-install-db", *options, "--auth-root-authentication-method=normal"),
        check=True,
        capture_output=True,
    )
    served = ("--skip-networking", "--local-infile=1", f"--socket={socket}")
    server = subprocess.Popen(
        ("mariadbd", *options, *served), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    client = ("mariadb", f"--defaults-file={home}/.my.cnf")
    create = (
        "DROP TABLE IF EXISTS shop.items;CREATE TABLE shop.items (id int, a longtext, b longtext)"
    )
    try:
        end = time.monotonic() + 120
        while subprocess.run((*client, "-e", "SELECT 1"), capture_output=True).returncode:
            assert server.poll() is None, "MariaDB has ended"
            assert time.monotonic() < end, "MariaDB does not start"
            time.sleep(0.1)
        subprocess.run((*client, "-e", "CREATE DATABASE shop CHARACTER SET utf8mb4"), check=True)
        texts = "id, ifnull(hex(a), 'NULL'), ifnull(hex(b), 'NULL')"
        yield Program(
            environment={"HOME": str(home)},
            create=(*client, "-e", create),
            rows=(*client, "-N", "-B", "-e", f"SELECT {texts} FROM shop.items"),
        )
    finally:
        server.terminate()
        server.wait()


@pytest.fixture
def sqlite3(tmp_path: Path) -> Program:
    """A new database of SQLite in the current directory, and its shell."""
    if shutil.which("sqlite3") is None:
        try:
            debian.prepared(("sqlite3",), ("sqlite3",), switch="UNLOADER_TEST_SQLITE3")
        except debian.Missing as missing:
            pytest.skip(f"no sqlite3: {missing}")
    texts = "id, ifnull(hex(a), 'NULL'), ifnull(hex(b), 'NULL')"
    return Program(
        environment={},
        create=("sqlite3", "shop.db", "CREATE TABLE items (id int, a text, b text)"),
        rows=("sqlite3", "-separator", "\t", "shop.db", f"SELECT {texts} FROM items"),
    )
