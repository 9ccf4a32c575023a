"""The ways to unload a schema that `bench_schema.py` measures, as a shell takes them."""

from __future__ import annotations

import argparse
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from progress import say
from schema_sources import Sample, Schema, quoted


@dataclass(frozen=True, kw_only=True)
class Command:
    """A shell command, for all tables or some of them."""

    text: str
    times: float = 1.0
    """The number of commands of this kind that it represents."""


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One way to unload the schema into an empty directory."""

    name: str
    commands: tuple[Command, ...]
    directory: Path


def big(schema: Schema, options: argparse.Namespace) -> tuple[Sample, ...]:
    """Return the big tables."""
    return schema.tables[: options.big_tables]


def small(schema: Schema, options: argparse.Namespace) -> tuple[Sample, ...]:
    """Return the tables that are not big."""
    return schema.tables[options.big_tables :]


def loop_small(schema: Schema, options: argparse.Namespace) -> tuple[Sample, ...]:
    """Return the small tables that the loop runs over, of all sizes."""
    few = sorted(small(schema, options), key=lambda each: each.rows)
    if not options.loop_small or options.loop_small >= len(few):
        return tuple(few)
    step = len(few) / options.loop_small
    return tuple(few[int((number + 0.5) * step)] for number in range(options.loop_small))


def made(schema: Schema, directory: Path, options: argparse.Namespace) -> list[Contender]:
    """Return all that take part."""
    found = [
        ours("ours", [schema.pattern], schema, directory, options, "--verify none"),
        ours("ours_counted", [schema.pattern], schema, directory, options),
        ours("ours_big", list(map(schema.named, big(schema, options))), schema, directory, options),
        loop(schema, directory, options),
    ]
    if schema.bin is None:
        return found
    if (schema.bin / "pg_dump").exists():
        found.append(pg_dump(schema, directory, options))
    else:
        say(f"no pg_dump: it is not in {schema.bin}")
    found.append(psql(schema, directory, options))
    return found


def run_of(schema: Schema, tables: list[str], to: str, options: argparse.Namespace) -> str:
    """Return an `unloader run` as a shell takes it."""
    words = [sys.executable, "-m", "unloader", "run", schema.url]
    words += [word for each in tables for word in ("--table", each)]
    words += ["--to", to, "--parallelism", str(options.parallelism)]
    words += ["--compression", options.compression, "--progress", "none", "--quiet"]
    return shlex.join(words)


def ours(
    name: str,
    tables: list[str],
    schema: Schema,
    directory: Path,
    options: argparse.Namespace,
    more: str = "",
) -> Contender:
    """Return one run over tables."""
    output = directory / name
    text = run_of(schema, tables, f"{output}/{{schema}}.{{table}}", options)
    return Contender(name=name, commands=(Command(text=f"{text} {more}"),), directory=output)


def loop(schema: Schema, directory: Path, options: argparse.Namespace) -> Contender:
    """Return the shell loop of one run after the other."""
    output, few = directory / "loop", loop_small(schema, options)

    def of(tables: tuple[Sample, ...]) -> str:
        places = {table: f"{output}/{schema.tables.index(table)}" for table in tables}
        return " && ".join(
            run_of(schema, [schema.named(table)], places[table], options) for table in tables
        )

    commands = (
        Command(text=of(big(schema, options))),
        Command(text=of(few), times=len(small(schema, options)) / max(1, len(few))),
    )
    return Contender(name="loop", commands=commands, directory=output)


def pg_dump(schema: Schema, directory: Path, options: argparse.Namespace) -> Contender:
    """Return pg_dump of the data into a directory, with the same codec."""
    assert schema.bin is not None
    output = directory / "pg_dump"
    words = [str(schema.bin / "pg_dump"), "--format=directory", f"--jobs={options.parallelism}"]
    words += ["--data-only", f"--compress={options.compression}", f"--file={output}/dump"]
    words += [f"--schema={quoted(schema.schema)}", schema.url]
    return Contender(name="pg_dump", commands=(Command(text=shlex.join(words)),), directory=output)


def psql(schema: Schema, directory: Path, options: argparse.Namespace) -> Contender:
    r"""Return COPY of each table by a separate psql, as `\copy` sends it."""
    assert schema.bin is not None
    output, files = directory / "psql", directory / "psql-arguments"
    pieces = []
    for number, each in enumerate(schema.tables):
        copy = f"COPY {schema.named(each)} TO STDOUT (FORMAT csv, HEADER)"
        pieces += ["-o", f"{output}/{number}.csv", "-c", copy]
    files.write_text("\0".join(pieces))
    program = shlex.join([str(schema.bin / "psql"), schema.url, "-Xq"])
    text = f"xargs -0 -n 4 -P {options.parallelism} {program} < {shlex.quote(str(files))}"
    return Contender(name="psql", commands=(Command(text=text),), directory=output)
