"""Runs into an object store beside obstore's bare upload of the same bytes, in parts of one size.

    python examples/bench_cloud.py --place 's3://bucket/bench?endpoint=http://127.0.0.1:7070' --json

A table is made in a DuckDB file and unloaded to a directory once. Then, in turn: a run into the
place, and bare puts by as many processes as the run has workers. They put the files of the
directory under other keys there. `wall_vs_bare_put` divides the run's time from its first row to
its last file, from its manifest, by the time of the bare puts. Both are without the start of a
process; `total_vs_bare_put` includes publishing. A run reads and encodes rows, and a put does not:
where the store shares the cores and uses the rest of them, the ratios show this work.

So the CPU time is reported, too. `cpu_vs_local_and_bare` divides the run's CPU time by the sum of a
run to a directory and the puts. All are from the start of the first process to the end of the last,
without the store's own. The modules that a run loads once cost about 1 CPU-s more than for a
directory, for any rows. With `--server-pid` that process, and its threads, get a separate CPU,
and all measured processes the others. Then the CPU time of the store is reported, too, as it bounds
any client. Where the command `aws` is found, and the place is in S3, it also copies the files of a
run to a directory: `wall_vs_local_then_cp` divides the run with publishing by that run and the
copy. Credentials come from the environment. Before the next turn the written objects are removed,
and this machine's pending disk writes are finished.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import obstore
from cpus import cpus, moved

from writers.objects.bucket import Bucket, open_store
from writers.objects.location import Location, s3_endpoint

_PART_BYTES = 8 * 1024 * 1024
_IN_FLIGHT = 4


def main() -> None:
    """Measure, and print a table or one object."""
    options = _options()
    # An installed program does not compile its modules at each run.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if options.server_pid:
        _part(options.server_pid)
    with tempfile.TemporaryDirectory() as folder:
        source = f"duckdb://{folder}/t.duckdb"
        _make(Path(folder, "t.duckdb"), options.rows)
        local = Path(folder, "out")
        _unload(source, str(local), options)
        files = sorted(path for path in local.iterdir() if path.name[0] != "_")
        size = sum(path.stat().st_size for path in files)
        bare, reading, whole, copied = [], [], [], []
        local_cpu, bare_cpu, run_cpu = [], [], []
        bare_server, run_server = [], []
        place = str(Location.parse(options.place).below("run"))
        for number in range(options.runs):
            turns = [
                lambda: local_cpu.append(_cpu(lambda: _unload(source, str(local), options))[0]),
                lambda: _note(
                    _cpu(
                        lambda: bare.append(_bare(options.place, files, options.workers)),
                        options.server_pid,
                    ),
                    bare_cpu,
                    bare_server,
                ),
                lambda: _note(
                    _cpu(lambda: _run(source, place, options, reading, whole), options.server_pid),
                    run_cpu,
                    run_server,
                ),
            ]
            if shutil.which("aws") and options.place.startswith("s3://"):
                turns.append(lambda: copied.append(_local_then_cp(source, local, options)))
            for turn in turns if number % 2 else turns[::-1]:
                turn()
                _clear(options.place)
                # The next contender must not wait for the writes of this one: the store may be
                # on a disk of this machine.
                os.sync()
    ratios = {
        "wall_vs_bare_put": _paired(reading, bare),
        "total_vs_bare_put": _paired(whole, bare),
        "cpu_vs_local_and_bare": _paired(
            run_cpu, [a + b for a, b in zip(local_cpu, bare_cpu, strict=True)]
        ),
    }
    if copied:
        ratios["wall_vs_local_then_cp"] = _paired(whole, copied)
    found = {
        "bytes": size,
        "files": len(files),
        "workers": options.workers,
        "bare_put_s": bare,
        "run_s": reading,
        "run_with_publishing_s": whole,
        "local_then_cp_s": copied,
        "local_run_cpu_s": local_cpu,
        "bare_put_cpu_s": bare_cpu,
        "run_cpu_s": run_cpu,
        "bare_put_server_cpu_s": bare_server,
        "run_server_cpu_s": run_server,
        "ratios": ratios,
    }
    if options.json:
        print(json.dumps(found, indent=1))
        return
    print(f"{size / 1e6:.0f} MB in {len(files)} files, {options.workers} workers")
    for name, ratio in ratios.items():
        print(f"{name:20} {ratio:.2f}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--place", required=True, help="an empty prefix; all objects in it are removed"
    )
    parser.add_argument("--rows", type=int, default=12_000_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--server-pid", type=int, default=0, help="gets a separate CPU")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def _part(server: int) -> None:
    """Give the server separate CPUs, and the others to this process and its children."""
    found = cpus()
    if not found.are_apart:
        raise SystemExit("there is only one CPU: the server cannot have a separate CPU")
    moved(server, found.server)
    os.sched_setaffinity(0, found.clients)


def _cpu(act: Callable[[], object], server: int = 0) -> tuple[float, float]:
    """Do something in other processes; return the CPU seconds of these, and of a server."""
    before, served = resource.getrusage(resource.RUSAGE_CHILDREN), _cpu_of(server)
    act()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    ours = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return ours, _cpu_of(server) - served


def _cpu_of(process: int) -> float:
    """Return the CPU seconds of all threads of a process so far; 0 for none."""
    if not process:
        return 0.0
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _note(found: tuple[float, float], ours: list[float], servers: list[float]) -> None:
    ours.append(found[0])
    servers.append(found[1])


def _paired(ours: list[float], theirs: list[float]) -> float:
    return round(statistics.median(a / b for a, b in zip(ours, theirs, strict=True)), 3)


def _make(path: Path, rows: int) -> None:
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT i, 'a name that is some thirty bytes ' || i AS name, "
            "i * 1.5 AS amount, TIMESTAMP '2024-01-01' + to_seconds(i) AS at, "
            f"'another text of a middling length, as they are' AS note FROM range({rows}) r(i)"
        )


def _unload(source: str, place: str, options: argparse.Namespace) -> dict[str, object]:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "unloader", "run", source, "--table", "t", "--to", place),
            *("--parallelism", str(options.workers), "--unit-bytes", "256MB", "--json"),
            *("--verify", "none", "--overwrite", "--quiet"),
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    found: dict[str, object] = json.loads(done.stdout)
    return found


def _local_then_cp(source: str, local: Path, options: argparse.Namespace) -> float:
    whole: list[float] = []
    _run(source, str(local), options, [], whole)
    to = Location.parse(options.place)
    more = [f"--endpoint-url={endpoint}"] if (endpoint := s3_endpoint(to.store)) else []
    target = f"s3://{to.bucket}/{to.below('copied').key}"
    began = time.perf_counter()
    subprocess.run(
        ["aws", "s3", "cp", "--recursive", "--only-show-errors", *more, str(local), target],
        check=True,
        env={"AWS_DEFAULT_REGION": "us-east-1", **os.environ},
    )
    return whole[0] + time.perf_counter() - began


def _run(
    source: str, place: str, options: argparse.Namespace, reading: list[float], whole: list[float]
) -> None:
    began = time.perf_counter()
    manifest = _unload(source, place, options)
    took = time.perf_counter() - began
    seconds = [
        (unit["started_s"], unit["started_s"] + unit["seconds"])  # type: ignore[index]
        for unit in manifest["units"]  # type: ignore[attr-defined]
    ]
    reading.append(max(end for _, end in seconds) - min(start for start, _ in seconds))
    # The time before the first row is the same with any destination.
    whole.append(took - min(start for start, _ in seconds))


def _bare(place: str, files: list[Path], workers: int) -> float:
    context = multiprocessing.get_context("spawn")
    with context.Pool(workers) as pool:
        pool.map(_ready, [place] * workers)
        began = time.perf_counter()
        pool.starmap(_put, [(place, str(path)) for path in files], chunksize=1)
        took = time.perf_counter() - began
        pool.close()
        pool.join()  # Before that the CPU time of its processes is not known.
    return took


def _ready(place: str) -> None:
    """Open the store, and let no process have all of these."""
    open_store(Location.parse(place))
    time.sleep(0.2)


def _put(place: str, path: str) -> None:
    location = Location.parse(place).below("bare", Path(path).name)
    with open(path, "rb") as file:
        obstore.put(
            open_store(location),
            location.key,
            file,
            chunk_size=_PART_BYTES,
            max_concurrency=_IN_FLIGHT,
        )


def _clear(place: str) -> None:
    location = Location.parse(place)
    bucket = Bucket(location)
    bucket.delete(each.key for each in bucket.within(location.prefix))


if __name__ == "__main__":
    main()
