#!/usr/bin/env python3
"""A run in a Dask cluster beside the same run on one machine, with the same number of workers.

    python examples/bench_cluster.py --rows 5M --workers 2 --json

A table is made in a DuckDB file, and a scheduler and Dask workers of one thread are started on this
machine. Then both runs take turns, and the next pair the other way round. `cluster_wall_vs_local`
is the median of the pairs' ratios of whole commands, the start of the process included, with Dask
workers that have loaded the modules for units in a first pair, which does not count;
`cluster_run_vs_local` is the median of the ratios of the runs' own times, from their manifests.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "tests" / "support")]

from clusters.cluster import cluster  # noqa: E402

from unloader.request.settings import parse_count  # noqa: E402


def main() -> None:
    """Measure, and print a table or one object."""
    options = _options()
    # An installed program has its bytecode and does not compile it at each start.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = _made(folder / "t.duckdb", options.rows)
        with cluster(folder / "cluster") as found:
            found.add(options.workers)
            (folder / "out").mkdir()
            kinds = {"local": (), "cluster": ("--cluster", found.address)}
            walls: dict[str, list[float]] = {kind: [] for kind in kinds}
            runs: dict[str, list[float]] = {kind: [] for kind in kinds}
            for number in range(options.runs + 1):
                for kind in sorted(kinds, reverse=bool(number % 2)):
                    call = (*_call(source, folder / "out" / kind, options), *kinds[kind])
                    wall = _timed(call)
                    if number:  # The first pair fills the caches.
                        manifest = json.loads(
                            (folder / "out" / kind / "_manifest.json").read_text()
                        )
                        walls[kind].append(wall)
                        runs[kind].append(manifest["totals"]["seconds"])
            _compare(folder / "out" / "local", folder / "out" / "cluster")
    report = {
        "rows": options.rows,
        "workers": options.workers,
        "wall_s": walls,
        "run_s": runs,
        "ratios": {"cluster_wall_vs_local": _paired(walls), "cluster_run_vs_local": _paired(runs)},
    }
    if options.json:
        print(json.dumps(report, indent=1))
        return
    for kind in walls:
        print(f"{kind:8} {statistics.median(walls[kind]):7.2f} s")
    print(f"cluster_wall_vs_local {report['ratios']['cluster_wall_vs_local']}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=parse_count, default=5_000_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--format", default="csv")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def _made(path: Path, rows: int) -> str:
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT i AS id, 'name of row ' || i AS name, "
            "(i * 7.25)::DECIMAL(18, 2) AS amount, DATE '2020-01-01' + (i % 1000)::INTEGER AS day, "
            f"i % 97 AS kind FROM range({rows}) r(i)"
        )
    return f"duckdb://{path}"


def _call(source: str, dest: Path, options: argparse.Namespace) -> tuple[str, ...]:
    return (
        *(sys.executable, "-m", "unloader", "run", source, "--table", "t", "--overwrite"),
        *("--to", str(dest), "--parallelism", str(options.workers), "--format", options.format),
        *("--progress", "none", "--quiet"),
    )


def _timed(call: tuple[str, ...]) -> float:
    began = time.perf_counter()
    subprocess.run(call, check=True, cwd=CHECKOUT)
    return time.perf_counter() - began


def _compare(one: Path, other: Path) -> None:
    names = sorted(path.name for path in one.iterdir() if path.name[0] != "_")
    assert names == sorted(path.name for path in other.iterdir() if path.name[0] != "_")
    for name in names:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


def _paired(seconds: dict[str, list[float]]) -> float:
    pairs = zip(seconds["cluster"], seconds["local"], strict=True)
    return round(statistics.median(one / other for one, other in pairs), 3)


if __name__ == "__main__":
    main()
