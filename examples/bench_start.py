#!/usr/bin/env python3
"""The cost of the smallest run: one table of a hundred rows, from each source, default options.

    python examples/bench_start.py --runs 20

CPU is user and system time of the whole process tree, the server's aside; a ratio is that over the
CPU of `python -c 'import pyarrow'` with one thread of OpenBLAS, in the same round. Beside each run
goes the database's own tool: `psql \\copy`, the command lines of SQLite and of DuckDB (or COPY from
Python, where the latter is not installed). The order changes from round to round, the first round
is not counted, and medians count. Each output is compared with the table's rows.

`cpu_s_per_worker` is the CPU that each worker after the first adds: a DuckDB table of about a
hundred small units is unloaded by one worker and by --workers in the same round, and the difference
is divided. It contains the opening of the database in each worker.

Oracle is the test server of this project; a missing source is skipped with a line on stderr.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shlex
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

from contenders import installed  # noqa: E402
from progress import say  # noqa: E402
from schema_sources import BALANCE, schema_of  # noqa: E402

WORKER_ROWS, UNIT_BYTES = 50_000, 50_000
"""Of the table that several workers read: enough units that each worker gets some, and little work,
as workers that share a core slow each other down."""

SOURCES = ("sqlite", "postgres", "duckdb", "oracle")
IMPORT = "import"
"""The name of what all are measured by."""


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A command, and the file or directory that it writes."""

    name: str
    command: tuple[str, ...]
    output: Path | None = None
    rows: int = 0


@dataclass(frozen=True, kw_only=True)
class Taken:
    """What one run took, in seconds."""

    wall: float
    cpu: float


def main() -> None:
    """Measure and print."""
    # An installed program has its bytecode and does not compile it at each start.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    options = parsed()
    with (
        tempfile.TemporaryDirectory(prefix="unloader-bench-", dir=options.dir) as place,
        ExitStack() as stack,
    ):
        directory = Path(place)
        # Run by root, a server has a separate user, who must reach its files.
        directory.chmod(0o755)
        contenders = [importing()]
        for source in options.only or SOURCES:
            contenders += stack.enter_context(MAKERS[source](directory, options.rows))
        if options.workers > 1:
            contenders += with_workers(directory, options.workers)
        taken = measured(contenders, options.runs)
    report = {
        "ratios": ratios(taken),
        "cpu_s_per_worker": per_worker(taken, options.workers),
        "medians": {name: medians(each) for name, each in taken.items()},
        "commands": {each.name: shlex.join(each.command) for each in contenders},
        "versions": {
            name: installed(name) for name in ("duckdb", "oracledb", "psycopg-binary", "pyarrow")
        },
        "options": {"rows": options.rows, "runs": options.runs, "workers": options.workers},
    }
    print(json.dumps(report, indent=1) if options.json else table(report))


def parsed() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=100, help="default: 100")
    parser.add_argument("--runs", type=int, default=20, help="rounds; default: 20")
    parser.add_argument("--workers", type=int, default=16, help="1 leaves it out; default: 16")
    parser.add_argument("--only", choices=SOURCES, action="append", help="can be repeated")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--dir", type=Path, help="make the working directory here")
    options = parser.parse_args()
    if min(options.rows, options.runs, options.workers) < 1:
        parser.error("--rows, --runs and --workers must be 1 or more")
    return options


def importing() -> Contender:
    """Return the measure: what every program pays that uses Arrow from Python."""
    return Contender(name=IMPORT, command=(sys.executable, "-c", "import pyarrow"))


def ours(source: str, url: str, table: str, directory: Path, rows: int) -> Contender:
    """Return our run of a table."""
    to = directory / f"ours-{source}"
    command = (sys.executable, "-m", "unloader", "run", url, "--table", table, "--to", str(to))
    return Contender(name=source, command=command, output=to, rows=rows)


@contextmanager
def of_sqlite(directory: Path, rows: int) -> Iterator[list[Contender]]:
    """Yield what unloads a table of a SQLite file."""
    path, file = directory / "start.db", directory / "sqlite3.csv"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE accounts (id INTEGER, name TEXT, price REAL)")
        connection.executemany(
            "INSERT INTO accounts VALUES (?, ?, ?)",
            [(number, f"name {number}", number / 4) for number in range(1, rows + 1)],
        )
    connection.close()
    found = [ours("sqlite", f"sqlite://{path}", "accounts", directory, rows)]
    tool = shutil.which("sqlite3")
    if tool is None:
        say("no sqlite3 to compare with")
    else:
        command = (tool, "-csv", str(path), f".output {file}", "SELECT * FROM accounts")
        found.append(Contender(name="sqlite sqlite3", command=command, output=file, rows=rows))
    yield found


@contextmanager
def of_postgres(directory: Path, rows: int) -> Iterator[list[Contender]]:
    """Yield what unloads a table of a PostgreSQL server, which is started here."""
    with schema_of(sized("postgres", rows), directory) as schema:
        (sample,) = schema.tables
        name, file = schema.named(sample), directory / "psql.csv"
        assert schema.bin is not None
        copy = rf"\copy {name} TO '{file}' (FORMAT csv)"
        psql = (str(schema.bin / "psql"), schema.url, "-Xqc", copy)
        yield [
            ours("postgres", schema.url, name, directory, rows),
            Contender(name="postgres psql", command=psql, output=file, rows=rows),
        ]


@contextmanager
def of_duckdb(directory: Path, rows: int) -> Iterator[list[Contender]]:
    """Yield what unloads a table of a DuckDB file."""
    path, file = directory / "start.duckdb", directory / "duckdb.csv"
    import duckdb

    with duckdb.connect(str(path)) as connection:
        connection.execute(
            f"CREATE TABLE accounts AS SELECT i AS id, {BALANCE} AS balance, 'name ' || i AS name "
            f"FROM range(1, {rows + 1}) made(i)"
        )
    copy = f"COPY accounts TO '{file}' (FORMAT csv, HEADER false)"
    tool = shutil.which("duckdb")
    if tool is not None:
        command: tuple[str, ...] = (tool, "-readonly", str(path), "-c", copy)
    else:
        program = f"import duckdb; duckdb.connect({str(path)!r}, read_only=True).execute({copy!r})"
        command = (sys.executable, "-c", program)
    yield [
        ours("duckdb", f"duckdb://{path}", "accounts", directory, rows),
        Contender(name="duckdb copy", command=command, output=file, rows=rows),
    ]


def with_workers(directory: Path, workers: int) -> list[Contender]:
    """Return two runs over the same units, by one worker and by several."""
    import duckdb

    path, rows = directory / "workers.duckdb", WORKER_ROWS
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            f"CREATE TABLE accounts AS SELECT i AS id, {BALANCE} AS balance, 'name ' || i AS name "
            f"FROM range(1, {rows + 1}) made(i)"
        )
    found = []
    for count in (1, workers):
        run = ours(f"workers-{count}", f"duckdb://{path}", "accounts", directory, rows)
        options = ("--parallelism", str(count), "--unit-bytes", str(UNIT_BYTES))
        found.append(replace(run, command=(*run.command, *options)))
    return found


def per_worker(taken: dict[str, list[Taken]], workers: int) -> float | None:
    """Return the CPU seconds of each worker after the first, None if there was one worker."""
    if workers == 1:
        return None
    pairs = zip(taken["workers-1"], taken[f"workers-{workers}"], strict=True)
    return middle([(several.cpu - one.cpu) / (workers - 1) for one, several in pairs])


@contextmanager
def of_oracle(directory: Path, rows: int) -> Iterator[list[Contender]]:
    """Yield what unloads a table of the Oracle test server."""
    with schema_of(sized("oracle-test", rows), directory) as schema:
        (sample,) = schema.tables
        yield [ours("oracle", schema.url, schema.named(sample), directory, rows)]


MAKERS = {"sqlite": of_sqlite, "postgres": of_postgres, "duckdb": of_duckdb, "oracle": of_oracle}


def sized(source: str, rows: int) -> argparse.Namespace:
    """Return the options of a database with one table."""
    return argparse.Namespace(source=source, tables=1, big_tables=1, big_rows=rows, small_rows=0)


def measured(contenders: list[Contender], runs: int) -> dict[str, list[Taken]]:
    """Run all in turn, round after round, and check what each of them wrote."""
    taken: dict[str, list[Taken]] = {each.name: [] for each in contenders}
    for number in range(runs + 1):
        turn = number % len(contenders)
        order = contenders[turn:] + contenders[:turn]
        for contender in order if number % 2 else order[::-1]:
            one = one_run(contender)
            check(contender)
            if number:
                taken[contender.name].append(one)
        say(f"round {number} of {runs}" if number else "warm-up")
    return taken


def one_run(contender: Contender) -> Taken:
    """Run a contender to an output that does not exist yet, and return its times."""
    environment = dict(os.environ)
    if contender.name == IMPORT:
        environment["OPENBLAS_NUM_THREADS"] = "1"
    if contender.output is not None:
        shutil.rmtree(contender.output, ignore_errors=True)
        contender.output.unlink(missing_ok=True)
    started = time.perf_counter()
    process = subprocess.Popen(
        contender.command,
        cwd=CHECKOUT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    said = process.stderr.read().decode(errors="replace")
    # wait4 counts every descendant that was waited for in turn: the whole tree.
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - started
    process.stderr.close()
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(
            f"{shlex.join(contender.command)} ended with status {process.returncode}: {said}"
        )
    return Taken(wall=wall, cpu=usage.ru_utime + usage.ru_stime)


def check(contender: Contender) -> None:
    """End the program unless the output has the rows of the table, by the numbers of their ids."""
    if contender.output is None:
        return
    files = [contender.output]
    if contender.output.is_dir():
        files = sorted(contender.output.glob("*.csv"))
    found = []
    for file in files:
        with file.open(encoding="utf-8", newline="") as text:
            found += [row[0] for row in csv.reader(text) if row[0].isdigit()]
    if sorted(map(int, found)) != list(range(1, contender.rows + 1)):
        raise SystemExit(f"{shlex.join(contender.command)} wrote other rows than the table has")


def ratios(taken: dict[str, list[Taken]]) -> dict[str, float]:
    """Return ours over the import, and over the database's own tool: medians over the rounds."""
    found: dict[str, float] = {}
    for name, runs in taken.items():
        source, _, tool = name.partition(" ")
        if name == IMPORT or name.startswith("workers-"):
            continue
        if not tool:
            pairs = zip(runs, taken[IMPORT], strict=True)
            found[f"{source}_cpu_vs_import"] = middle([a.cpu / b.cpu for a, b in pairs])
            continue
        mine = list(zip(taken[source], runs, strict=True))
        # The smallest tools take less than the clock of processes can tell.
        found[f"{source}_cpu_vs_{tool}"] = middle([a.cpu / max(b.cpu, 1e-3) for a, b in mine])
        found[f"{source}_wall_vs_{tool}"] = middle([a.wall / b.wall for a, b in mine])
    return found


def middle(values: list[float]) -> float:
    """Return the median."""
    return round(statistics.median(values), 3)


def medians(runs: list[Taken]) -> dict[str, float]:
    """Return the medians of one contender."""
    return {
        "wall_s": middle([each.wall for each in runs]),
        "cpu_s": middle([each.cpu for each in runs]),
    }


def table(report: dict[str, Any]) -> str:
    """Return the report as text."""
    lines = [f"{'':<18}{'wall s':>9}{'CPU s':>9}"]
    for name, each in report["medians"].items():
        lines.append(f"{name:<18}{each['wall_s']:>9.3f}{each['cpu_s']:>9.3f}")
    lines += ["", *(f"{name:<32}{ratio:>8.3f}" for name, ratio in report["ratios"].items())]
    if report["cpu_s_per_worker"] is not None:
        lines.append(f"{'cpu_s_per_worker':<32}{report['cpu_s_per_worker']:>8.3f}")
    lines.append(f"\n{report['versions']}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
