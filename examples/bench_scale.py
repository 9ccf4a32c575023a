#!/usr/bin/env python3
"""Speed and CPU of `unloader run` by the number of workers, beside the database's own tool.

    python examples/bench_scale.py --levels 1,2,4,8,16 --rows 20000000 --dir /dev/shm

The table is the reference table (32 hash partitions) in a DuckDB file, in a PostgreSQL server that
this script starts, or in the Oracle test server of this repository, in as many processes as the
largest level. The other tool is DuckDB's COPY with as many threads (a file for each thread, rows in
any order), or as many `psql \\copy` at a time as there are workers. Oracle has none. A server has
the upper half of the CPUs and its clients the lower half.

Times are from the first row to the last: from the start of the first work unit to the end of the
last one, and for COPY the time of its statement. Each level unloads all rows, and half of them. A
straight line through both gives what a run costs whatever the number of rows: `fixed_s_at_N`.
`start_s_at_N` is the same for the rest of the process: imports, plan, publication.
`fixed_cpu_s_per_worker_at_N` is what the fixed CPU grows by from one worker to N, for each further
worker. `csv_vs_copy_at_N` is our speed over the other tool's, `csv_whole_vs_copy_at_N` the same for
whole processes. `cpu_per_row_at_N_vs_1` is the growth of CPU for a row, without the fixed part.
Every round runs all of them in turn, and medians over the rounds count.

CPU is user and system time of the process tree. Rows are counted again in all files by DuckDB.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

from bench_end_to_end import apart, data_files, machine, need_space, timed, versions  # noqa: E402
from bench_oracle import count, partitions_of  # noqa: E402
from contenders import PARTITIONS, TABLE, Contender, parts, postgres_server, query  # noqa: E402
from cpus import cpus, kept_to  # noqa: E402
from oracle_test_server import oracle_test_server  # noqa: E402
from progress import say  # noqa: E402

from unloader.sources.duckdb.reference import build_reference_table  # noqa: E402

FORMATS = {"csv": "FORMAT csv, HEADER", "parquet": "FORMAT parquet, CODEC zstd"}
"""Our formats, and the same for COPY."""
SHORT = 2
"""The short run has this part of the partitions: fewer of them would leave workers without one."""

COPY = """
import sys, time, duckdb
database, threads, sql, output = sys.argv[1:]
connection = duckdb.connect(database, read_only=True)
connection.execute(f"SET threads = {threads}")
connection.execute("SET preserve_insertion_order = false")
begun = time.perf_counter()
connection.execute(sql)
with open(output + "/seconds", "w") as file:
    file.write(str(time.perf_counter() - begun))
"""


@dataclass(frozen=True, kw_only=True)
class Source:
    """A database with the table, and how to read all of it and half."""

    arguments: dict[str, tuple[str, ...]]
    """Of `unloader run`, for the lengths `long` and `short`."""
    rows: dict[str, int]
    database: Path
    """Any DuckDB file, for counting rows."""
    tool: str
    """The name of the other tool, empty if there is none."""
    clients: frozenset[int] | None = None
    psql: tuple[str, ...] = ()


@dataclass(frozen=True)
class Taken:
    """What one run took, in seconds."""

    wall: float
    cpu: float
    rows: float
    """From the first row to the last."""

    @property
    def start(self) -> float:
        """What the process takes before and after."""
        return self.wall - self.rows


Key = tuple[str, str, int, str]
"""Contender, format, level and length."""


def main() -> None:
    """Measure and print."""
    # An installed program has its bytecode and does not compile it at each start.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    options = parsed()
    with tempfile.TemporaryDirectory(prefix="unloader-bench-", dir=options.dir) as place:
        directory = Path(place)
        # Run by root, a server has a separate user, who must reach its files.
        directory.chmod(0o755)
        need_space(directory, options.rows)
        with SOURCES[options.source](directory, options) as source:
            taken = measured(source, directory, options)
        report = {
            "ratios": ratios(taken, source, options),
            "levels": levels(taken, source, options),
            "machine": machine(directory),
            "versions": versions(None),
            "options": {
                name: value for name, value in vars(options).items() if name not in ("json", "dir")
            },
        }
    print(json.dumps(report, indent=1) if options.json else table(report))


def parsed() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--source", choices=SOURCES, default="duckdb", help="default: duckdb")
    parser.add_argument(
        "--levels",
        type=lambda text: sorted({1, *map(int, text.split(","))}),
        default="1,2,16",
        help="numbers of workers; 1 is always among them; default: 1,2,16",
    )
    parser.add_argument("--rows", type=int, default=4_000_000, help="default: 4000000")
    parser.add_argument("--runs", type=int, default=3, help="rounds; default: 3")
    parser.add_argument("--format", choices=FORMATS, action="append", help="default: both")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--dir", type=Path, help="make the working directory here")
    options = parser.parse_args()
    options.format = options.format or list(FORMATS)
    if options.rows < PARTITIONS or options.runs < 1 or options.levels[0] < 1:
        parser.error(f"--rows must be {PARTITIONS} or more, --runs and --levels 1 or more")
    return options


@contextmanager
def of_duckdb(directory: Path, options: argparse.Namespace) -> Iterator[Source]:
    """Yield two DuckDB files, one for each length."""
    rows = {"long": options.rows, "short": options.rows // SHORT}
    files = {length: directory / f"{length}.duckdb" for length in rows}
    for length, file in files.items():
        say(f"building {rows[length]:,} rows in {file}")
        build_reference_table(file, rows[length], partitions=PARTITIONS, stop=lambda: False)
    yield Source(
        arguments={length: (f"duckdb://{file}",) for length, file in files.items()},
        rows=rows,
        database=files["long"],
        tool="copy",
    )


@contextmanager
def of_postgres(directory: Path, options: argparse.Namespace) -> Iterator[Source]:
    """Yield a PostgreSQL server with the table."""
    database = directory / "reference.duckdb"
    build_reference_table(database, options.rows, partitions=PARTITIONS, stop=lambda: False)
    options.only = None
    with postgres_server(directory, database, options) as postgres:
        if postgres is None:
            raise SystemExit("no PostgreSQL server can be started here")
        some = parts()[: PARTITIONS // SHORT]
        counts = [int(postgres.run(f"SELECT count(*) FROM {part}")) for part in some]
        yield Source(
            arguments=of_partitions(postgres.url, some),
            rows={"long": options.rows, "short": sum(counts)},
            database=database,
            tool="psql",
            clients=apart(postgres),
            psql=(postgres.psql, postgres.url),
        )


@contextmanager
def of_oracle(directory: Path, options: argparse.Namespace) -> Iterator[Source]:
    """Yield the Oracle test server with the table."""
    database = directory / "empty.duckdb"
    build_reference_table(database, 1, partitions=1, stop=lambda: False)
    server = ("--reference", str(options.rows), "--partitions", str(PARTITIONS))
    found = cpus()
    with ExitStack() as ended:
        with kept_to(found.server):
            processes = ("--processes", str(max(options.levels)))
            url = ended.enter_context(oracle_test_server(*server, *processes))["url"]
        named = argparse.Namespace(table=TABLE)
        some = partitions_of(named, url)[: PARTITIONS // SHORT]
        yield Source(
            arguments=of_partitions(url, tuple(some)),
            rows={"long": options.rows, "short": count(url, TABLE, some)},
            database=database,
            tool="",
            clients=found.clients if found.are_apart else None,
        )


SOURCES = {"duckdb": of_duckdb, "postgres": of_postgres, "oracle-test": of_oracle}


def of_partitions(url: str, some: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Return the arguments for the whole table and for some partitions."""
    return {"long": (url,), "short": (url, "--partition", ",".join(some))}


def contenders(
    source: Source, directory: Path, options: argparse.Namespace
) -> dict[Key, Contender]:
    """Return all runs of a round."""
    found = {}
    for form in options.format:
        for level in options.levels:
            for length in source.arguments:
                output = directory / f"ours-{form}"
                command = (
                    *(sys.executable, "-m", "unloader", "run", *source.arguments[length]),
                    *("--table", TABLE if source.tool != "psql" else TABLE.lower()),
                    *("--to", str(output), "--format", form, "--parallelism", str(level)),
                    *("--verify", "none", "--progress", "none", "--quiet"),
                )
                found["ours", form, level, length] = Contender(
                    contest=form, name="ours", command=command, directory=output, format=form
                )
            other = of_tool(source, directory, form, level)
            if other is not None:
                found[source.tool, form, level, "long"] = other
    return found


def of_tool(source: Source, directory: Path, form: str, level: int) -> Contender | None:
    """Return the other tool's run of the whole table."""
    output = directory / f"{source.tool}-{form}"
    if source.tool == "copy":
        sql = f"COPY {TABLE} TO '{output}' ({FORMATS[form]}, PER_THREAD_OUTPUT, OVERWRITE)"
        database = str(source.database)
        command: tuple[str, ...] = (
            sys.executable,
            "-c",
            COPY,
            database,
            str(level),
            sql,
            str(output),
        )
    elif source.tool == "psql" and form == "csv":
        copy = f"\\copy {{}} TO '{output}/{{}}.csv' (FORMAT csv, HEADER)"
        psql = shlex.join([*source.psql, "-Xq", "-c", copy])
        names = " ".join(parts())
        command = ("sh", "-c", f"printf '%s\\n' {names} | xargs -P {level} -I {{}} {psql}")
    else:
        return None
    return Contender(contest=form, name=source.tool, command=command, directory=output, format=form)


def measured(
    source: Source, directory: Path, options: argparse.Namespace
) -> dict[Key, list[Taken]]:
    """Run all in turn, round after round; a round before the first is checked and not counted."""
    all_runs = contenders(source, directory, options)
    taken: dict[Key, list[Taken]] = {key: [] for key in all_runs}
    for number in range(options.runs + 1):
        for key in all_runs if number % 2 else reversed(all_runs):
            contender = all_runs[key]
            wall, cpu = timed(contender, source.clients)
            one = Taken(wall, cpu, seconds_of_rows(contender.directory) or wall)
            say(
                f"round {number}: {' '.join(map(str, key))} {one.rows:.2f} s of {wall:.2f} s, "
                f"CPU {cpu:.2f} s"
            )
            if number:
                taken[key].append(one)
            else:
                check(contender, source, key[-1])
            shutil.rmtree(contender.directory)
    return taken


def seconds_of_rows(directory: Path) -> float | None:
    """Return the time from the first row to the last, or None where no file tells it."""
    if (told := directory / "seconds").exists():
        return float(told.read_text())
    if not (manifest := directory / "_manifest.json").exists():
        return None
    units = json.loads(manifest.read_bytes())["units"]
    ends = [float(unit["started_s"] + unit["seconds"]) for unit in units]
    return max(ends) - min(float(unit["started_s"]) for unit in units)


def check(contender: Contender, source: Source, length: str) -> None:
    """End the program unless the files have as many rows as the table."""
    reader = "read_parquet" if contender.format == "parquet" else "read_csv"
    files = [str(file) for file in data_files(contender)]
    strict = "" if contender.format == "parquet" else ", header = true, all_varchar = true"
    ((found,),) = query(source.database, f"SELECT count(*) FROM {reader}({files!r}{strict})")
    if found != source.rows[length]:
        raise SystemExit(
            f"{shlex.join(contender.command)} wrote {found:,} rows and not {source.rows[length]:,}"
        )


def middle(runs: list[Taken], quantity: str) -> float:
    """Return the median of one quantity."""
    return float(statistics.median(getattr(each, quantity) for each in runs))


def fixed(taken: dict[Key, list[Taken]], source: Source, form: str, level: int, of: str) -> float:
    """Return what a run costs without any row, by the line through both lengths."""
    long, short = (middle(taken["ours", form, level, each], of) for each in ("long", "short"))
    rows = source.rows
    per_row = (long - short) / (rows["long"] - rows["short"])
    return long - per_row * rows["long"]


def levels(
    taken: dict[Key, list[Taken]], source: Source, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Return a line for each format and level: medians of the long runs, and the fixed parts."""
    lines = []
    for form in options.format:
        for level in options.levels:
            line: dict[str, Any] = {"format": form, "workers": level}
            for name in filter(None, ("ours", source.tool)):
                if runs := taken.get((name, form, level, "long")):
                    line[f"{name}_rows_per_second"] = round(
                        source.rows["long"] / middle(runs, "rows")
                    )
                    line[f"{name}_cpu_s_per_million_rows"] = round(
                        middle(runs, "cpu") * 1e6 / source.rows["long"], 3
                    )
            line["fixed_s"] = round(fixed(taken, source, form, level, "rows"), 3)
            line["start_s"] = round(fixed(taken, source, form, level, "start"), 3)
            line["fixed_cpu_s"] = round(fixed(taken, source, form, level, "cpu"), 3)
            lines.append(line)
    return lines


def ratios(
    taken: dict[Key, list[Taken]], source: Source, options: argparse.Namespace
) -> dict[str, float]:
    """Return the ratios by level; names without a format are of the first format."""
    found = {}
    for form in options.format:
        prefix = "" if form == options.format[0] else f"{form}_"

        def per_row(level: int, form: str = form) -> float:
            whole = middle(taken["ours", form, level, "long"], "cpu")
            return whole - fixed(taken, source, form, level, "cpu")

        for level in options.levels:
            if theirs := taken.get((source.tool, form, level, "long")):
                mine = taken["ours", form, level, "long"]
                for name, of in ((form, "rows"), (f"{form}_whole", "wall")):
                    ratio = middle(theirs, of) / middle(mine, of)
                    found[f"{name}_vs_{source.tool}_at_{level}"] = ratio
                one = taken[source.tool, form, 1, "long"]
                found[f"{form}_{source.tool}_cpu_at_{level}_vs_1"] = middle(theirs, "cpu") / middle(
                    one, "cpu"
                )
            for name, of in (("fixed", "rows"), ("start", "start")):
                found[f"{prefix}{name}_s_at_{level}"] = fixed(taken, source, form, level, of)
            if level > 1:
                found[f"{prefix}cpu_per_row_at_{level}_vs_1"] = per_row(level) / per_row(1)
                growth = fixed(taken, source, form, level, "cpu") - fixed(
                    taken, source, form, 1, "cpu"
                )
                found[f"{prefix}fixed_cpu_s_per_worker_at_{level}"] = growth / (level - 1)
    return {name: round(value, 4) for name, value in found.items()}


def table(report: dict[str, Any]) -> str:
    """Return the report as text."""
    names = list(dict.fromkeys(name for line in report["levels"] for name in line))
    lines = ["  ".join(names)]
    for line in report["levels"]:
        cells = (f"{line.get(name, '-')!s:>{len(name)}}" for name in names)
        lines.append("  ".join(cells))
    lines += ["", *(f"{name:<40}{ratio:>9.3f}" for name, ratio in report["ratios"].items())]
    return "\n".join([*lines, "", str(report["machine"]), str(report["options"])])


if __name__ == "__main__":
    main()
