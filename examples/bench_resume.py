#!/usr/bin/env python3
"""The cost of resuming a run of very many work units when nearly all are done.

    python examples/bench_resume.py --units 100000 --json

A table is made in a DuckDB file, and a run of it is killed after it has recorded its plan. Then
this script stages the files of all units except the last ones, with their lines in the journal,
exactly as the run would have left them. To unload them would take many minutes, which are not
measured. `unloader resume` confirms each of them by its checksum, unloads the last ones, counts,
and publishes. `unloader verify` then reads everything once more.

The figures are of the command that resumes: seconds, CPU seconds including its workers, and the
peak memory of the parent process. The ratio is the CPU time for each unit that was kept.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb

from partition_planner.model import RowRange, WorkUnit
from unloader.model import BoundSeat, FinishedUnit, Stages
from unloader.resolve.resolved import ResolvedTable
from unloader.run.outputs import line, staged_line
from writers.files.checksums import open_digest
from writers.model import WrittenFile

UNLOADER = (sys.executable, "-m", "unloader")
ROWS, UNIT_BYTES = 25, 3200
"""Of one unit."""
LEFT = 100
"""Units that are left to be unloaded."""


def main() -> None:
    """Measure, and show the results."""
    # An installed program has its bytecode and does not compile it at each start.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--units", type=int, default=100_000)
    parser.add_argument(
        "--dir", type=Path, help="directory for the files; default: a temporary one"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.dir) as directory:
        found = measured(Path(directory), options.units)
    if options.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name:24} {value}")


def measured(directory: Path, units: int) -> dict[str, Any]:
    """Return the figures of one resumption."""
    dest = directory / "out"
    source = make_table(directory / "t.duckdb", units * ROWS)
    break_off(source, dest)
    kept = stage(dest)
    began = time.perf_counter()
    status, out, used = call("resume", str(dest), "--json", "--progress", "none")
    seconds = time.perf_counter() - began
    if status != 0:
        sys.exit(f"bench_resume: resume ended with {status}: {out}")
    manifest = json.loads(out)
    if manifest["totals"]["rows"] != units * ROWS:
        sys.exit(f"bench_resume: {manifest['totals']['rows']} rows instead of {units * ROWS}")
    subprocess.run([*UNLOADER, "verify", str(dest), "--quiet"], check=True)
    cpu = used.ru_utime + used.ru_stime
    return {
        "units": len(manifest["units"]),
        "kept": kept,
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu, 2),
        "peak_rss_bytes": used.ru_maxrss * 1024,
        "ratios": {"resume_cpu_microseconds_per_kept_unit": round(cpu / kept * 1e6, 1)},
    }


def make_table(path: Path, rows: int) -> str:
    """Make a table of integers that are their own row numbers; return its source."""
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"CREATE TABLE t AS SELECT i FROM range({rows}) r(i)")
    return f"duckdb://{path}"


def break_off(source: str, dest: Path) -> None:
    """Start a run and kill it before it has done much."""
    line = ("run", source, "--table", "t", "--to", str(dest), "--unit-bytes", str(UNIT_BYTES))
    with subprocess.Popen(
        [*UNLOADER, *line, "--parallelism", "1", "--progress", "none"], start_new_session=True
    ) as process:
        while not (dest / "_run" / "run.json").exists():
            if process.poll() is not None:
                sys.exit(f"bench_resume: the run ended with {process.returncode}")
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)


def stage(dest: Path) -> int:
    """Stage all units but the last ones, as a run does; return how many there are now."""
    room = dest / "_run"
    (table,) = json.loads((room / "run.json").read_text())["tables"]
    run = ResolvedTable.from_json(table)
    kept = run.plan.units[:-LEFT]
    with open(room / "journal.jsonl", "wb") as journal:
        for unit in kept:
            journal.write(line("started", unit.id, 1))
            journal.write(staged_line(finished(unit, room / "staged", len(kept) * ROWS)))
    return len(kept)


def finished(unit: WorkUnit, staged: Path, end: int) -> FinishedUnit:
    """Write the file of a unit; return its line of the journal."""
    (selector,) = unit.selectors
    assert isinstance(selector, RowRange)
    first, last = int(selector.first or 0), int(selector.last or end)
    data = b"i\n" + b"".join(b"%d\n" % row for row in range(first, last))
    name = f"{unit.id}-a1.csv.part"
    (staged / name).write_bytes(data)
    digest = open_digest("xxh3")
    digest.update(data)
    checksum = f"xxh3:{digest.hexdigest()}"
    file = WrittenFile(path=name, rows=last - first, bytes=len(data), checksum=checksum)
    return FinishedUnit(
        unit=unit.id,
        attempt=1,
        rows=last - first,
        files=(file,),
        stages=Stages(
            fetch_s=0.0,
            encode_s=0.0,
            write_s=0.0,
            compress_s=0.0,
            compress_cpu_s=0.0,
            uncompressed_bytes=None,
        ),
        seconds=0.0,
        cpu_seconds=0.0,
        peak_rss_bytes=0,
        partition=None,
        partitions=(),
        seat=BoundSeat(node=0, cpus=(), memory_node=None, memory_policy=None),
        worker=0,
        started_s=None,
    )


def call(*arguments: str) -> tuple[int, str, Any]:
    """Run a command; return its status, its output, and what its process used."""
    with (
        tempfile.TemporaryFile("w+") as out,
        subprocess.Popen([*UNLOADER, *arguments], stdout=out) as process,
    ):
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        return process.returncode, out.read(), used


if __name__ == "__main__":
    main()
