"""The Oracle source reads from a server that others wrote: the Mirror of seerdb, over PostgreSQL.

Only whole queries: the Mirror's DBMS_ROWID, SCNs and TO_CHAR of a NUMBER without precision are not
there, and its dictionary has no statistics of tables.
"""

from __future__ import annotations

import csv
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from processes.command import run
from processes.program import Program
from witness_clients import Missing, mirror_command

ROWS = 5_000
# Statements that PostgreSQL runs itself. DUAL comes with the extension orafce, which the wheel of
# PostgreSQL lacks.
TABLES = f"""
CREATE SCHEMA scott;
CREATE TABLE scott.dual (dummy varchar(1));
INSERT INTO scott.dual VALUES ('X');
CREATE SCHEMA "SCOTT";
CREATE TABLE "SCOTT"."ROWS" AS
SELECT i AS "K",
       (i * 123456789012345)::numeric(18) AS "N18",
       (CASE WHEN i % 7 > 0 THEN i * -1.25 END)::numeric(12, 2) AS "N12_2",
       (i * 12345678901234567890.123)::numeric(38, 10) AS "N38_10",
       (CASE WHEN i % 5 > 0 THEN 'row, "' || i || '" ü日🦊' END)::varchar(40) AS "V",
       (timestamp '0001-01-01' + i * interval '17 hours 3 seconds')::timestamp(0) AS "T0",
       (CASE WHEN i % 3 > 0
        THEN timestamp '9999-12-31 23:59:59.999999' - i * interval '1.000001 s' END)::timestamp(6)
           AS "T6",
       decode(lpad(to_hex(i::int), 8, '0'), 'hex') AS "B",
       1.0::float8 / i AS "BD"
FROM (SELECT g::numeric(9) AS i FROM generate_series(1, {ROWS}) g) numbers;
"""
READERS: tuple[Callable[[str], Any], ...] = (
    int,
    int,
    Decimal,
    Decimal,
    str,
    datetime.fromisoformat,
    datetime.fromisoformat,
    str,
    float,
)


@contextmanager
def _mirror(command: tuple[str, ...], database: str, log: Path) -> Iterator[int]:
    """Serve a database to Oracle clients, and yield the port."""
    with log.open("w") as output:
        process = Program(
            [*command, "--port", "0", "postgres", database],
            stdout=output,
            stderr=output,
            env={**os.environ, "MIRROR_USERS": "scott:tiger"},
        )
    try:
        found = None
        while found is None:
            assert process.poll() is None, log.read_text()
            time.sleep(0.05)
            found = re.search(r"listening on 127\.0\.0\.1:(\d+)", log.read_text())
        yield int(found[1])
    finally:
        process.terminate()
        process.wait()


def _rows(text: str) -> list[tuple[Any, ...]]:
    """Return the rows of delimited text; nothing at all is NULL."""
    lines = list(csv.reader(text.splitlines()))
    return [
        tuple(read(value) if value else None for read, value in zip(READERS, line, strict=True))
        for line in lines[1:]
    ]


def test_a_query_is_unloaded_from_another_oracle_server(postgres: Any, tmp_path: Path) -> None:
    """Every value that comes through another user's server is the one PostgreSQL has."""
    try:
        command = mirror_command()
    except Missing as missing:
        pytest.skip(f"no seerdb Mirror: {missing}")
    url = postgres.database("mirror")
    postgres.run(TABLES, url=url)
    with _mirror(command, url, tmp_path / "mirror.log") as port:
        run(
            "run",
            f"oracle://scott@127.0.0.1:{port}/mirror",
            *("--query", 'SELECT * FROM "SCOTT"."ROWS"'),
            *("--consistency", "none", "--to", str(tmp_path / "out"), "--binary-format", "hex"),
            env={"UNLOADER_PASSWORD": "tiger"},
        )
    (written,) = (tmp_path / "out").glob("*.csv")
    select = """SELECT "K", "N18", "N12_2", "N38_10", "V", "T0", to_char("T6",
        'YYYY-MM-DD HH24:MI:SS.US'), encode("B", 'hex'), "BD" FROM "SCOTT"."ROWS" """
    expected = _rows(postgres.run(f"COPY ({select}) TO STDOUT WITH (FORMAT csv, HEADER)", url=url))
    assert len(expected) == ROWS
    assert sorted(_rows(written.read_text())) == sorted(expected)
