#!/usr/bin/env python3
"""One run over all tables of a schema, beside other tools: wall time and CPU.

    python examples/bench_schema.py --json
    python examples/bench_schema.py --source duckdb --tables 2000
    python examples/bench_schema.py --source oracle-test --tables 50

PostgreSQL: a server that this script starts, with 500 tables. Three have 2 million rows and the
others 0 to 20,000, hostile names and foreign keys among them. A writer commits transfers between
the tables all the time, and inserts rows. DuckDB: a file with small tables. Oracle: the test server
of this repository, which speaks Oracle's wire protocol to the real driver. Side by side:

  ours          one `unloader run` over all tables, `--verify none`
  ours_counted  the same with the default, `--verify count`
  pg_dump       `pg_dump -Fd -j` of the data, with the same codec
  psql          COPY of each table by a separate psql, as many at a time; PostgreSQL alone
  loop          `unloader run` of one table after the other, each with its own snapshot; of the
                small tables `--loop-small` are run, of all sizes, and the rest is estimated

All have the same parallelism. The server and the writer have one half of the CPUs and the
contenders the other, where there are two or more; with `--together` all share them. A round runs
the contenders in turn, every second round in the opposite order. A ratio is ours divided by theirs
within a round, the median over the rounds counts, and less is better. `wall_vs_pg_dump` and
`wall_vs_psql` use `ours`, as those two tools count nothing. `wall_vs_loop` and `cpu_vs_loop` use
`ours_counted`, as each run of the loop counts; so do the ratios that end in `_counted`. CPU is user
and system time of the process tree; the server's CPU is reported separately.
`cpu_ms_per_small_table` is the CPU of `ours_counted` over all tables, less its CPU over the big
tables alone, for each small table.

Ours has every file on the disk before it has its final name, and pg_dump syncs every file at its
end (`--sync`, its default); psql syncs nothing. pg_dump writes the text form of COPY; ours reads it
and writes CSV; psql writes the CSV form, which costs the server more. The report has this as
`notes`.

DuckDB reads the files of ours after each run. Every table must be as it was after one and the same
transfer, row by row, and the balances of all tables must still have their initial sum.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

from cpus import Cpus, cpus, kept_to  # noqa: E402
from progress import say  # noqa: E402
from schema_contenders import Contender, loop_small, made, small  # noqa: E402
from schema_sources import Schema, check, schema_of, write, writing  # noqa: E402

ASIDE = "measured"
"""Where the directories of runs that were measured lie until the end."""

NOTES = (
    "ours syncs every file before it has its final name; pg_dump syncs all files at its end; "
    "psql does not sync",
    "pg_dump and ours request COPY's text form, psql requests its CSV form: see server_cpu_s",
    "workers of ours, --jobs of pg_dump and parallel psqls are --parallelism; same codec",
)
"""What a reader of the ratios must know."""

TABLES = {"postgres": 500, "duckdb": 2000, "oracle-test": 50}
BIG = {"postgres": (3, 2_000_000), "duckdb": (3, 2_000_000), "oracle-test": (1, 100_000)}
SMALL_ROWS = {"postgres": 20_000, "duckdb": 2_000, "oracle-test": 2_000}


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One run of one contender."""

    name: str
    round: int
    wall_s: float
    cpu_s: float
    server_cpu_s: float
    bytes: int


def main() -> None:
    """Measure and print, or be the writer."""
    options = parsed()
    # An installed program has its bytecode and does not compile it at each start.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if options.writer:
        write(options)
        return
    given = Cpus.shared() if options.together or options.source == "duckdb" else cpus()
    with ExitStack() as ended:
        directory = ended.enter_context(workplace(options))
        with kept_to(given.server):
            schema = ended.enter_context(schema_of(options, directory))
        contenders = [
            each
            for each in made(schema, directory, options)
            if not options.only or each.name in options.only
        ]
        with kept_to(given.server):
            ended.enter_context(writing(schema, arguments(options), Path(__file__)))
        measurements, checked = measure(contenders, schema, options, given.clients)
        report = {
            "ratios": ratios(measurements, schema, options),
            "medians": medians(measurements),
            "checked": checked,
            "runs": [asdict(each) for each in measurements],
            "commands": {c.name: [shown(each.text) for each in c.commands] for c in contenders},
            "loop_reckoned": len(loop_small(schema, options)) < len(small(schema, options)),
            "notes": NOTES if schema.bin is not None else (),
            "machine": machine(directory),
            "cpus": {"server": sorted(given.server), "clients": sorted(given.clients)},
            "versions": versions(schema),
            "options": {
                name: value
                for name, value in vars(options).items()
                if name not in ("dir", "keep", "writer", "json")
            },
        }
    print(json.dumps(report, indent=1) if options.json else table(report))


def parsed() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--source", choices=list(TABLES), default="postgres")
    parser.add_argument("--tables", type=int, help="default: 500, 2000 or 50, by the source")
    parser.add_argument("--big-tables", type=int, help="of these; default: 3, for Oracle 1")
    parser.add_argument("--big-rows", type=int, help="default: 2000000, for Oracle 100000")
    parser.add_argument(
        "--small-rows", type=int, help="of the others at most; default: 20000, 2000"
    )
    parser.add_argument("--runs", type=int, default=3, help="rounds; default: 3")
    parser.add_argument("--parallelism", type=int, default=2, help="default: 2")
    parser.add_argument("--compression", default="none", help="none, gzip:6, zstd:3, ...")
    parser.add_argument("--loop-small", type=int, default=20, help="default: 20; 0 is all")
    parser.add_argument("--together", action="store_true", help="server and clients share CPUs")
    parser.add_argument("--only", action="append", help="this contender; can be repeated")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--dir", type=Path, help="make the working directory here")
    parser.add_argument("--keep", type=Path, help="work in this directory and keep all files in it")
    parser.add_argument("--writer", help=argparse.SUPPRESS)
    options = parser.parse_args()
    source = options.source
    defaults = {
        "tables": TABLES[source],
        "big_tables": BIG[source][0],
        "big_rows": BIG[source][1],
        "small_rows": SMALL_ROWS[source],
    }
    for name, value in defaults.items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    if not 0 < options.big_tables < options.tables or options.runs < 1:
        parser.error("--tables must be more than --big-tables, and --runs 1 or more")
    return options


def arguments(options: argparse.Namespace) -> list[str]:
    """Return the options that decide which tables there are, for the writer."""
    names = ("source", "tables", "big_tables", "big_rows", "small_rows")
    return [
        text
        for name in names
        for text in (f"--{name.replace('_', '-')}", str(getattr(options, name)))
    ]


@contextmanager
def workplace(options: argparse.Namespace) -> Iterator[Path]:
    """Yield the working directory; without --keep it is removed in the end."""
    if options.keep is not None:
        options.keep.mkdir(parents=True, exist_ok=True)
        # Run by root, the server has a separate user, who must reach its files.
        options.keep.chmod(0o755)
        yield options.keep.resolve()
        return
    directory = Path(tempfile.mkdtemp(prefix="unloader-bench-", dir=options.dir)).resolve()
    directory.chmod(0o755)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def measure(
    contenders: list[Contender], schema: Schema, options: argparse.Namespace, on: frozenset[int]
) -> tuple[list[Measurement], list[dict[str, int]]]:
    """Run all contenders in turn on some CPUs, round after round; check what ours wrote.

    A round of ours before the first is not counted: it fills the page cache.
    """
    measurements, checked = [], []
    for number in range(options.runs + 1):
        for contender in contenders if number % 2 else contenders[::-1]:
            if number == 0 and not contender.name.startswith("ours"):
                continue
            with kept_to(on):
                taken = one_run(contender, number, schema)
            say(
                f"{'warm-up' if not number else f'round {number}'}: {contender.name} "
                f"{taken.wall_s:.2f} s, CPU {taken.cpu_s:.2f} s"
            )
            if contender.name in ("ours", "ours_counted"):
                checked.append(check(schema, contender.directory))
            if number:
                measurements.append(taken)
            put_aside(contender.directory, f"{number} {contender.name}")
    shutil.rmtree(contenders[0].directory.with_name(ASIDE), ignore_errors=True)
    return measurements, checked


def put_aside(directory: Path, name: str) -> None:
    """Empty the files of a run, and leave them to be removed after all measurements.

    For a minute ext4 does not reuse the number of a removed file, and it passes over each such
    number whenever a file is made. Removing a thousand files makes the next run's files several
    times as expensive.
    """
    for path in directory.rglob("*"):
        if path.is_file():
            os.truncate(path, 0)
    aside = directory.with_name(ASIDE)
    aside.mkdir(exist_ok=True)
    directory.rename(aside / name)


def one_run(contender: Contender, number: int, schema: Schema) -> Measurement:
    """Run a contender into an empty directory and return its times, measured or estimated."""
    shutil.rmtree(contender.directory, ignore_errors=True)
    contender.directory.mkdir()
    found = Measurement(
        name=contender.name, round=number, wall_s=0.0, cpu_s=0.0, server_cpu_s=0.0, bytes=0
    )
    for command in contender.commands:
        os.sync()  # no run writes the dirty pages of the run before it
        before, started = schema.server_cpu_seconds(), time.perf_counter()
        process = subprocess.Popen(
            ["sh", "-c", command.text], cwd=CHECKOUT, stdin=subprocess.DEVNULL
        )
        # wait4 counts every descendant that was waited for in turn: the whole tree.
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{contender.name} ended with status {process.returncode}")
        server = schema.server_cpu_seconds() - before
        found = replace(
            found,
            wall_s=round(found.wall_s + wall * command.times, 4),
            cpu_s=round(found.cpu_s + (usage.ru_utime + usage.ru_stime) * command.times, 4),
            server_cpu_s=round(found.server_cpu_s + server * command.times, 2),
        )
    files = (each for each in contender.directory.rglob("*") if each.is_file())
    return replace(found, bytes=sum(each.stat().st_size for each in files))


def ratios(
    measurements: list[Measurement], schema: Schema, options: argparse.Namespace
) -> dict[str, float]:
    """Return ours divided by theirs, and the CPU of a small table: medians over the rounds."""
    taken = {(each.round, each.name): each for each in measurements}
    pairs = [
        (f"{quantity}_vs_{theirs}{end}", quantity, mine, theirs)
        for theirs, ends in (
            ("pg_dump", {"": "ours", "_counted": "ours_counted"}),
            ("psql", {"": "ours", "_counted": "ours_counted"}),
            ("loop", {"": "ours_counted"}),
        )
        for end, mine in ends.items()
        for quantity in ("wall", "cpu")
    ]
    found: dict[str, float] = {}
    for label, quantity, mine, theirs in pairs:
        values = [
            getattr(taken[number, mine], f"{quantity}_s")
            / max(getattr(each, f"{quantity}_s"), 0.001)
            for (number, name), each in taken.items()
            if name == theirs and (number, mine) in taken
        ]
        if values:
            found[label] = round(statistics.median(values), 4)
    small_cpu = [
        each.cpu_s - taken[number, "ours_big"].cpu_s
        for (number, name), each in taken.items()
        if name == "ours_counted" and (number, "ours_big") in taken
    ]
    if small_cpu:
        each = statistics.median(small_cpu) / len(small(schema, options))
        found["cpu_ms_per_small_table"] = round(each * 1e3, 3)
    return found


def medians(measurements: list[Measurement]) -> list[dict[str, Any]]:
    """Return one line for each contender: medians over its runs."""
    lines = []
    for name in dict.fromkeys(each.name for each in measurements):
        runs = [each for each in measurements if each.name == name]
        lines.append(
            {
                "name": name,
                "wall_s": round(statistics.median(each.wall_s for each in runs), 3),
                "cpu_s": round(statistics.median(each.cpu_s for each in runs), 3),
                "server_cpu_s": round(statistics.median(each.server_cpu_s for each in runs), 2),
                "bytes": runs[-1].bytes,
            }
        )
    return lines


def shown(text: str) -> str:
    """Return a command for the report, cut where it names hundreds of tables."""
    return text if len(text) < 1000 else f"{text[:1000]} ..."


def machine(directory: Path) -> dict[str, Any]:
    """Return the versions and hardware that the figures depend on."""
    return {
        "usable_cpus": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": platform.platform(),
        "load_average": os.getloadavg()[0],
        "directory": str(directory),
    }


def versions(schema: Schema) -> dict[str, str]:
    """Return the versions of what took part."""
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version()}
    for name in ("psycopg-binary", "duckdb", "oracledb", "pyarrow"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    if schema.bin is not None and (schema.bin / "pg_dump").exists():
        done = subprocess.run(
            [str(schema.bin / "pg_dump"), "--version"], capture_output=True, text=True
        )
        found["pg_dump"] = done.stdout.strip()
    return found


def table(report: dict[str, Any]) -> str:
    """Return the report as text."""
    lines = [f"{'by':<16}{'wall s':>9}{'CPU s':>9}{'server':>9}{'MB':>9}"]
    lines += [
        f"{line['name']:<16}{line['wall_s']:>9.2f}{line['cpu_s']:>9.2f}"
        f"{line['server_cpu_s']:>9.2f}{line['bytes'] / 1e6:>9.1f}"
        for line in report["medians"]
    ]
    lines.append("\nours divided by theirs, median of the rounds:")
    lines += [f"{name:<32}{ratio:>10.4f}" for name, ratio in report["ratios"].items()]
    lines += ["", *report["notes"]]
    lines.append(f"\n{report['machine']}\n{report['versions']}\n{report['options']}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
