#!/usr/bin/env python3
"""Wall time and CPU of `unloader run` beside other tools, on the same rows.

    python examples/bench_end_to_end.py --rows 5000000 --runs 5

The table is the reference table (32 hash partitions), in a DuckDB file and in a PostgreSQL server
that this script starts. The other tools are

  psql     `\\copy` of each partition to its own CSV file, two psql at a time from a shared list;
           psql_synced is the same and `sync` of its files
  adbc     adbc_driver_postgresql and pyarrow, two processes with half the partitions each
  duckdb   DuckDB's COPY of the server's partitions to Parquet, two threads, one file, through its
           extension postgres, where the DuckDB of `--duckdb-python` has that
  copy     DuckDB's own COPY, two threads, one file

and ours runs with parallelism 2. PostgreSQL's processes have the upper half of the CPUs, and its
clients the lower half, so that neither takes time from the other; `--together` gives all CPUs to
both. Each round runs ours and theirs in turn, every second round in the opposite order. A ratio is
ours / theirs within one round, and the median over the rounds counts.
Files are compared with the table, all columns of all rows, after every single run.

What each side does: ours checksums and syncs every file, renames it, and writes a manifest; psql,
pyarrow and DuckDB's COPY write and close without a sync. psql_synced shows the cost of files that
survive a power cut. `--sync` adds a sync of their files to the time of all other tools. The ratios
use ours with `--verify none`, since the other tools do not count the rows in the database again.
Ratios that end in `_counted` use ours with the default, `--verify count`.

CPU is user and system time of the whole process tree, start-up included, without the server; the
server's is reported separately. Needs the extra `test`; a missing tool is skipped with a line on
stderr.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

from contenders import (  # noqa: E402
    COLUMNS,
    PARTITIONS,
    TABLE,
    Contender,
    Postgres,
    duckdb_contenders,
    installed,
    postgres_contenders,
    postgres_server,
    query,
)
from cpus import cpus, kept_to, moved  # noqa: E402
from progress import say  # noqa: E402

from unloader.sources.duckdb.reference import build_reference_table  # noqa: E402

DISK_BYTES_PER_ROW = 900
"""Reference file, PostgreSQL's heap and log, and the output of one run; a guess, and high."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One run of one contender."""

    contest: str
    name: str
    round: int
    wall_s: float
    cpu_s: float
    server_cpu_s: float | None
    bytes: int


def main() -> None:
    """Measure and print."""
    # An installed program has its bytecode and does not compile it at each start.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    options = parsed()
    with workplace(options) as directory:
        need_space(directory, options.rows)
        database = directory / "reference.duckdb"
        say(f"building {options.rows:,} rows in {database}")
        build_reference_table(database, options.rows, partitions=PARTITIONS, stop=lambda: False)
        with postgres_server(directory, database, options) as postgres:
            contenders = duckdb_contenders(directory, database, options)
            if postgres is not None:
                contenders = postgres_contenders(directory, postgres, options) + contenders
            clients = apart(postgres) if postgres and not options.together else None
            measurements = measure(contenders, postgres, database, options, clients)
        report = {
            "ratios": ratios(measurements),
            "medians": medians(measurements, options.rows),
            "runs": [asdict(measurement) for measurement in measurements],
            "commands": {f"{c.contest} {c.name}": shlex.join(c.command) for c in contenders},
            "machine": machine(directory),
            "versions": versions(postgres),
            "options": {
                "rows": options.rows,
                "runs": options.runs,
                "sync": options.sync,
                "cpus_of_clients": sorted(clients) if clients else None,
            },
        }
    print(json.dumps(report, indent=1) if options.json else table(report))


def parsed() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=5_000_000, help="default: 5000000")
    parser.add_argument("--runs", type=int, default=5, help="rounds; default: 5")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--sync", action="store_true", help="include the sync of the others' files in their time"
    )
    parser.add_argument(
        "--together", action="store_true", help="give all CPUs to the server and to its clients"
    )
    parser.add_argument(
        "--only",
        choices=["pg_csv", "pg_parquet", "duckdb_csv", "duckdb_parquet"],
        action="append",
        help="this contest only; can be repeated",
    )
    parser.add_argument(
        "--duckdb-python",
        default=sys.executable,
        metavar="PYTHON",
        help="interpreter of the contender duckdb; default: this one",
    )
    parser.add_argument("--dir", type=Path, help="make the working directory here")
    parser.add_argument("--keep", type=Path, help="work in this directory and keep all files in it")
    options = parser.parse_args()
    if options.rows < 1 or options.runs < 1:
        parser.error("--rows and --runs must be 1 or more")
    return options


@contextmanager
def workplace(options: argparse.Namespace) -> Iterator[Path]:
    """Yield the working directory; without --keep it is removed in the end."""
    if options.keep is not None:
        options.keep.mkdir(parents=True, exist_ok=True)
        yield options.keep.resolve()
        return
    directory = Path(tempfile.mkdtemp(prefix="unloader-bench-", dir=options.dir)).resolve()
    # Run by root, the server has a separate user, who must reach its files.
    directory.chmod(0o755)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def need_space(directory: Path, rows: int) -> None:
    """End the program if the directory has too little space."""
    free, needed = shutil.disk_usage(directory).free, rows * DISK_BYTES_PER_ROW
    if free < needed:
        raise SystemExit(
            f"{rows:,} rows need about {needed:,} bytes in {directory}, but only {free:,} are "
            "free. Next: give fewer --rows or another --dir."
        )


def apart(postgres: Postgres) -> frozenset[int] | None:
    """Give the server separate CPUs; return the others, None where there is one."""
    found = cpus()
    if not found.are_apart:
        say("one CPU: the server and its clients share it")
        return None
    # Sessions that are opened from now on have the CPUs of the postmaster.
    for process in (postgres.postmaster, *postgres.postmaster.children(recursive=True)):
        moved(process.pid, found.server)
    return found.clients


def measure(
    contenders: list[Contender],
    postgres: Postgres | None,
    database: Path,
    options: argparse.Namespace,
    clients: frozenset[int] | None = None,
) -> list[Measurement]:
    """Run all contenders in turn, round after round, and check what each of them wrote.

    A round before the first is not counted: it fills the page cache and shows early if a contender
    does not work at all.
    """
    expected = fingerprint(database, TABLE)
    measurements = []
    for number in range(options.runs + 1):
        for contender in contenders if number % 2 else contenders[::-1]:
            measurement = one_run(contender, number, postgres, clients)
            check(contender, database, expected)
            say(
                f"{'warm-up' if number == 0 else f'round {number}'}: {contender.contest} "
                f"{contender.name} {measurement.wall_s:.2f} s, CPU {measurement.cpu_s:.2f} s"
            )
            if number:
                measurements.append(measurement)
            if options.keep is None or number < options.runs:
                shutil.rmtree(contender.directory)
    return measurements


def one_run(
    contender: Contender, number: int, postgres: Postgres | None, clients: frozenset[int] | None
) -> Measurement:
    """Run a contender into an empty directory and return its times, and the server's."""
    server = postgres if contender.contest.startswith("pg_") else None
    server_before = server.cpu_seconds() if server else 0.0
    wall, cpu = timed(contender, clients if server else None)
    return Measurement(
        contest=contender.contest,
        name=contender.name,
        round=number,
        wall_s=round(wall, 4),
        cpu_s=round(cpu, 4),
        server_cpu_s=round(server.cpu_seconds() - server_before, 2) if server else None,
        bytes=sum(file.stat().st_size for file in data_files(contender)),
    )


def timed(contender: Contender, clients: frozenset[int] | None) -> tuple[float, float]:
    """Run a contender into an empty directory; return its wall and CPU seconds."""
    shutil.rmtree(contender.directory, ignore_errors=True)
    contender.directory.mkdir()
    os.sync()  # no run writes the dirty pages of the run before it
    with kept_to(clients):
        started = time.perf_counter()
        process = subprocess.Popen(
            contender.command, cwd=CHECKOUT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
    # wait4 counts every descendant that was waited for in turn: the whole tree.
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(
            f"{contender.contest} {contender.name} ended with status {process.returncode}: "
            f"{shlex.join(contender.command)}"
        )
    return wall, usage.ru_utime + usage.ru_stime


def data_files(contender: Contender) -> list[Path]:
    """Return the files a contender wrote, without a manifest."""
    return sorted(contender.directory.glob(f"*.{contender.format}"))


def check(contender: Contender, database: Path, expected: tuple[int, int]) -> None:
    """End the program unless the files hold the rows of the table, each as often."""
    files = "[" + ", ".join(f"'{file}'" for file in data_files(contender)) + "]"
    if contender.format == "parquet":
        relation = f"read_parquet({files})"
    else:
        types = ", ".join(f"'{name}': '{kind}'" for name, (kind, _) in COLUMNS.items())
        relation = (
            f"read_csv({files}, header = true, columns = {{{types}}}, delim = ',', quote = '\"', "
            "escape = '\"', auto_detect = false)"
        )
    found = fingerprint(database, relation)
    if found != expected:
        raise SystemExit(
            f"{contender.contest} {contender.name} wrote other rows than the table has: count "
            f"and sum of hashes are {found} instead of {expected}"
        )


def fingerprint(database: Path, relation: str) -> tuple[int, int]:
    """Return the number of rows and the sum of a 64-bit hash over all columns of each."""
    typed = ", ".join(f"{name}::{kind}" for name, (kind, _) in COLUMNS.items())
    sql = f"SELECT count(*), sum(hash(row({typed}))::HUGEINT) FROM {relation}"
    count, hashes = query(database, sql)[0]
    return int(count), int(hashes or 0)


QUANTITIES: dict[str, Callable[[Measurement], float]] = {
    "wall": lambda taken: taken.wall_s,
    "cpu": lambda taken: taken.cpu_s,
    "total_cpu": lambda taken: taken.cpu_s + (taken.server_cpu_s or 0.0),
    "bytes": lambda taken: float(taken.bytes),
}


def ratios(measurements: list[Measurement]) -> dict[str, float]:
    """Return ours / theirs for each contest, other side and quantity: medians over the rounds."""
    found: dict[str, list[float]] = {}
    taken = {(m.contest, m.round, m.name): m for m in measurements}
    for (contest, number, name), theirs in taken.items():
        if name.startswith("ours"):
            continue
        for end, mine in (("", "ours"), ("_counted", "ours_counted")):
            mine_taken = taken[contest, number, mine]
            for quantity, of in QUANTITIES.items():
                if theirs.server_cpu_s is None and quantity == "total_cpu":
                    continue
                ratio = of(mine_taken) / max(of(theirs), 0.01)
                found.setdefault(f"{contest}_{quantity}_vs_{name}{end}", []).append(ratio)
    return {name: round(statistics.median(each), 4) for name, each in sorted(found.items())}


def medians(measurements: list[Measurement], rows: int) -> list[dict[str, Any]]:
    """Return one line for each contender: medians over its runs."""
    lines = []
    for contest, name in dict.fromkeys((m.contest, m.name) for m in measurements):
        runs = [m for m in measurements if (m.contest, m.name) == (contest, name)]
        cpu = statistics.median(m.cpu_s for m in runs)
        server = [m.server_cpu_s for m in runs if m.server_cpu_s is not None]
        lines.append(
            {
                "contest": contest,
                "name": name,
                "wall_s": round(statistics.median(m.wall_s for m in runs), 3),
                "cpu_s": round(cpu, 3),
                "cpu_s_per_million_rows": round(cpu * 1e6 / rows, 3),
                "server_cpu_s": round(statistics.median(server), 2) if server else None,
                "bytes": runs[-1].bytes,
            }
        )
    return lines


def machine(directory: Path) -> dict[str, Any]:
    """Return the versions and hardware that the figures depend on."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    return {
        "cpu": model,
        "usable_cpus": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": platform.platform(),
        "load_average": os.getloadavg()[0],
        "directory": str(directory),
    }


def versions(postgres: Postgres | None) -> dict[str, str | None]:
    """Return the versions of everything that took part."""
    names = ("duckdb", "pyarrow", "psycopg-binary", "adbc-driver-postgresql")
    found: dict[str, str | None] = {name: installed(name) for name in names}
    found["python"] = platform.python_version()
    if postgres is not None:
        done = subprocess.run([postgres.psql, "--version"], capture_output=True, text=True)
        found["psql"] = done.stdout.strip()
    return found


def table(report: dict[str, Any]) -> str:
    """Return the report as text."""
    lines = [
        f"{'contest':<16}{'by':<14}{'wall s':>9}{'CPU s':>9}{'CPU s/M':>9}{'server':>9}{'MB':>9}"
    ]
    for line in report["medians"]:
        server = "" if line["server_cpu_s"] is None else f"{line['server_cpu_s']:.2f}"
        lines.append(
            f"{line['contest']:<16}{line['name']:<14}{line['wall_s']:>9.2f}{line['cpu_s']:>9.2f}"
            f"{line['cpu_s_per_million_rows']:>9.2f}{server:>9}{line['bytes'] / 1e6:>9.1f}"
        )
    lines.append("\nours / theirs, median of the rounds:")
    lines += [f"{name:<44}{ratio:>8.3f}" for name, ratio in report["ratios"].items()]
    lines.append(f"\n{report['machine']}\n{report['versions']}\n{report['options']}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
