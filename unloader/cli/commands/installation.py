"""Commands on this installation and machine: demo, formats, sources and topology.

`demo` does the work of `unloader run` and `unloader verify` with their defaults, through the same
functions, so its figures are the product's.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
from msgspec import to_builtins

from unloader import api
from unloader.cli.display import render, seats
from unloader.cli.options.command import declared, given
from unloader.cli.options.rules import conflicts
from unloader.cli.signals import stop_on_signals
from unloader.cli.watching import display_for
from unloader.errors import ConfigError, Interrupted, OutputFailed, UsageError
from unloader.events import Notice, Observer
from unloader.lakehouse.lake_formats import EXTRAS, LIBRARIES
from unloader.model import OutputOptions, Request, SeatOptions, Selection, SourceSpec
from unloader.nouns import counted
from unloader.placement.survey import Survey, recording, survey
from unloader.request.names import parse_table
from unloader.request.options import fields_of
from unloader.resolve.resolved import NATIVE_LIBRARIES
from unloader.sources.duckdb import reference as duckdb_reference
from unloader.sources.registry import schemes, source_of
from writers import built_library, registry
from writers.model import Compression, ParquetFormat, TextFormat
from writers.text import dialects


@declared(
    "formats",
    "List output formats, codecs and dialects.",
    """
    unloader formats --json
    """,
)
def formats(**values: Any) -> None:
    """List output formats, compression codecs, dialects of delimited text, and kinds of tables."""
    # Imported on use: they load Arrow, which no help page needs.
    from writers.native import encoder
    from writers.parquet.native import pages

    codecs, known = registry.codecs(), dialects.DIALECTS
    tables = {kind: _installed(library) for kind, library in LIBRARIES.items()}
    # These two also compare the version of their interface. Others need drivers for that.
    whole = {"text": encoder.library, "pages": pages.library}
    libraries = [
        {
            "name": title,
            "why_not": built_library.reason(
                whole.get(key) or partial(built_library.open_library, module, variable)
            ),
            "cpu_without": times,
        }
        for key, (title, module, variable, times) in NATIVE_LIBRARIES.items()
    ]
    document = {
        "formats": registry.FORMATS,
        "compression": codecs,
        "dialects": {name: to_builtins(each) for name, each in known.items()},
        "tables": tables,
        "native_libraries": libraries,
    }

    heads = ("dialect", "delimiter", "enclosure", "enclose", "escape", "null", "eol", "header")
    ends = {"\r\n": "crlf", "\n": "lf"}
    parts = [
        render.table(("format",), ((name,) for name in registry.FORMATS)),
        render.table(
            ("compression", "formats", "levels", "library for text"),
            (
                (
                    *(each["codec"], ", ".join(each["formats"])),
                    "{} to {}".format(*each["levels"]) if each["levels"] else None,
                    each["library"],
                )
                for each in codecs
            ),
        ),
        render.table(
            heads,
            (
                (
                    *(name, _escaped(each.delimiter), _escaped(each.enclosure)),
                    *(each.enclose, each.escape),
                    each.null if each.null == r"\N" else _escaped(each.null),
                    *(ends.get(each.eol) or _escaped(each.eol), each.header),
                )
                for name, each in known.items()
            ),
        ),
        render.table(
            ("table", "library", "version"),
            (
                (name, LIBRARIES[name], found or f"pip install 'unloader[{EXTRAS[name]}]'")
                for name, found in tables.items()
            ),
        ),
        render.table(
            ("native library", "CPU without it", "usable"),
            (
                (each["name"], f"up to {each['cpu_without']:g} times", each["why_not"] or True)
                for each in libraries
            ),
        ),
    ]
    if any(each["why_not"] for each in libraries):
        parts.append(f"Next: {built_library.advice()}.")
    render.answer(values, document, "\n\n".join(parts))


def _installed(library: str) -> str | None:
    try:
        return version(library)
    except PackageNotFoundError:
        return None


def _escaped(text: str) -> str | None:
    """Return a text as the options take it, or None for an empty text."""
    return text.encode("unicode_escape").decode() or None


@declared(
    "sources",
    "List the databases that can be read.",
    """
    unloader sources
    """,
)
def sources(**values: Any) -> None:
    """List the kinds of sources, their drivers, and how to install a missing driver."""
    found = [_entry(scheme) for scheme in schemes()]
    rows = (
        (
            *(each["scheme"], each["driver"]),
            *(each["driver_version"] or each["install"], each["summary"]),
        )
        for each in found
    )
    heads = ("scheme", "driver", "version", "what")
    render.answer(values, {"sources": found}, render.table(heads, rows))
    for each in () if values["quiet"] else found:
        if each["warning"]:
            click.echo(f"unloader: warning: {each['driver']}: {each['warning']}", err=True)


def _entry(scheme: str) -> dict[str, Any]:
    names = ("driver", "extra", "driver_version", "install", "warning")
    entry: dict[str, Any] = {"scheme": scheme, "summary": "", **dict.fromkeys(names), "options": []}
    try:
        source = source_of(scheme)
    except ConfigError as error:
        # A broken third-party package must not hide the others.
        return {**entry, "summary": error.message}
    entry |= {"summary": source.summary, "driver": source.driver, "extra": source.extra}
    entry["options"] = list(source.options)
    installed = entry["driver_version"] = _installed(source.driver) if source.driver else None
    if installed is not None:
        entry["warning"] = source.driver_warning(installed)
    elif source.extra:
        entry["install"] = f"pip install 'unloader[{source.extra}]'"
    return entry


@declared(
    "topology",
    "Show NUMA nodes, and the placement of workers on them.",
    """
    unloader topology
    unloader topology --parallelism 12 --placement close
    unloader topology --sysfs /tmp/db01/system --allowed-cpus 0-31 --json
    """,
)
@click.pass_context
def topology(context: click.Context, /, **values: Any) -> None:
    """Draw the NUMA nodes, their CPUs, memory and distances, and the seats of the workers.

    The command takes the placement options of run and reads the same limits of the machine:
    affinity, cpusets, quotas. With --parallelism auto, the number of workers is the number of CPUs
    that can be used in parallel.
    """
    asked = given(context)
    for error in conflicts(values, asked):
        raise error
    for option in ("sysfs", "record"):
        if values[option] == "":
            # A script's variable that is not set, which must not mean this machine.
            raise UsageError(f"--{option} is empty", "name a path, or leave the option out")
    tree = Path(values["sysfs"]) if values["sysfs"] else None
    if tree is not None and "near" not in asked:
        values["near"] = None  # A variable describes this machine, and another machine is shown.
    found = survey(
        SeatOptions(**fields_of(SeatOptions, values)),
        parallelism=values["parallelism"],
        tree=tree,
        allowed_cpus=frozenset(values["allowed_cpus"] or ()) or None,
    )
    if values["record"] is not None:
        record = recording(tree)
        try:
            Path(values["record"]).write_text(record, "utf-8")
        except OSError as error:
            raise OutputFailed(
                f"the machine cannot be recorded in {values['record']}: {error.strerror}",
                "give another --record",
            ) from error
    render.answer(values, found.to_json(), lambda: _machine(found, render.terminal_width()))
    render.notices(() if values["json"] or values["quiet"] else found.notices)


def _machine(found: Survey, width: int) -> str:
    machine, nodes = found.topology, found.topology.nodes
    sockets = {node.package for node in nodes if node.cpus}
    bare = sum(not node.cpus for node in nodes)
    in_sockets = f" in {counted(len(sockets), 'socket')}" if None not in sockets else ""
    without_cpus = f"; {bare:,} without usable CPUs" if bare else ""
    sizes = [node.memory_bytes for node in nodes if node.memory_allowed]
    known = [size for size in sizes if size is not None]
    memory = render.size(sum(known)) if known and len(known) == len(sizes) else render.UNKNOWN
    workers = f"{len(found.seats):,}{' (auto)' if found.automatic else ''}"
    if len(found.seats) > machine.usable_cpus:
        workers += f", on {machine.usable_cpus:,} usable CPUs"
    policy = f"bind {found.bind}, memory {found.memory_policy}"
    facts = [
        ("machine", found.recorded_at or "this one, limited to the CPUs of this process"),
        ("nodes", f"{len(nodes):,}{in_sockets}{without_cpus}"),
        ("CPUs", _cpus(found)),
        ("memory", memory),
        ("workers", f"{workers}; placement {found.options.placement}, {policy}"),
    ]
    if machine.cpu_quota is not None:
        quota = f"the time of {machine.cpu_quota:g} CPUs, by the control group"
        facts.insert(3, ("quota", quota))
    if (device := found.near) is not None:
        kind = "network interface" if device.kind == "network" else "disk"
        text = device.note or f"unknown node of {device.name}"
        if device.node is not None:
            note = f"; {device.note}" if device.note else ""
            text = f"node {device.node}, of the {kind} {device.name}{note}"
        facts.append(("near", text))
    tables = (
        seats.node_table(machine, found.seats, width),
        seats.distances(machine, width),
        seats.seat_table(machine, found.seats, found.memory_policy, width),
    )
    return "\n\n".join(filter(None, (render.folded_facts(facts), *tables)))


def _cpus(found: Survey) -> str:
    nodes, offline = found.topology.nodes, found.topology.offline_cpus
    cores = seats.cores_by_threads(nodes).items()
    shapes = (f"{counted(each, 'core')} x {counted(threads, 'thread')}" for threads, each in cores)
    parts = [f"{sum(len(node.cpus) for node in nodes):,} ({' + '.join(shapes)})"]
    speeds = {speed for node in nodes for speed in node.speeds}
    denied = sum(len(node.cpus_denied) for node in nodes)
    parts += [f"cores of {len(speeds)} speeds"] if len(speeds) > 1 else []
    parts += [f"{denied:,} more not usable"] if denied else []
    parts += [f"off: {render.ranges(offline)}"] if offline else []
    return "; ".join(parts)


TABLE = "HASH_PART_0160"

_OUTPUTS: dict[str, tuple[TextFormat | ParquetFormat, Compression, int]] = {
    "csv": (TextFormat(), Compression(), 137),
    "parquet": (ParquetFormat(), Compression(codec="zstd"), 85),
}
"""Format, codec and bytes a row, the last a little over the measured size, to judge the space."""

_NOTICES = 10
"""Lines that report the build, for any number of rows."""

_START_SECONDS, _CPU_SECONDS_PER_ROW = 3, 5e-6
"""Measured on a virtual machine with two CPUs, for the build and both outputs."""


@declared(
    "demo",
    "Try everything on a generated table, without a server.",
    """
    unloader demo
    unloader demo --rows 200k --dir /tmp/unloader-demo --parallelism 2
    """,
)
def demo(**values: Any) -> None:
    """Create a table in a DuckDB file, unload it to CSV and Parquet, and verify the files."""
    with display_for(values) as display, stop_on_signals(display.stopping) as stop:
        found = run_demo(
            Path(values["dir"]),
            values["rows"],
            parallelism=values["parallelism"],
            observe=display,
            stop=stop,
        )
    rows = (
        (
            *(line["name"], line["rows"], render.size(line["bytes"]), f"{line['seconds']:.2f}"),
            f"{line['mb_per_second']:,.1f} MB/s",
            *(line["verified"], line["directory"]),
        )
        for line in found["results"]
    )
    heads = ("output", ">rows", ">bytes", ">seconds", ">speed", "verified", "directory")
    place = render.facts((("database", found["database"]),))
    render.answer(values, found, lambda: f"{render.table(heads, rows)}\n\n{place}")


def run_demo(
    directory: Path, rows: int, *, parallelism: int, observe: Observer, stop: Callable[[], bool]
) -> dict[str, Any]:
    """Build the table in `directory`, unload it to `csv/` and `parquet/` there, verify both.

    A database that an earlier demonstration with as many rows left there is used again; its output
    is replaced. The seconds of a result are of the unload alone. `observe` gets notices of
    the build, then the events of the runs.
    """
    directory = directory.absolute()
    database = directory / "reference.duckdb"
    row_bytes = sum(each for _, _, each in _OUTPUTS.values())
    if rows > 0 and not duckdb_reference.is_current(database, rows, table=TABLE):
        row_bytes += duckdb_reference.BYTES_PER_ROW
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    needed, free = rows * row_bytes, shutil.disk_usage(existing).free
    if needed > free:
        room = free // row_bytes
        raise OutputFailed(
            f"{rows:,} rows need about {needed:,} bytes in {directory}, but only {free:,} are free",
            f"give {f'--rows {room} or fewer, or ' if room else ''}another --dir",
        )
    seconds = _START_SECONDS + rows * _CPU_SECONDS_PER_ROW / (os.cpu_count() or 1)
    size = render.size(needed)
    observe(Notice(text=f"{rows:,} rows need {size} in {directory}, and about {seconds:,.0f} s"))
    reported = 0

    def report(done: int) -> None:
        nonlocal reported
        if done * _NOTICES // rows > reported:
            reported = done * _NOTICES // rows
            observe(Notice(text=f"reference table: {done:,} of {rows:,} rows built"))

    duckdb_reference.build_reference_table(database, rows, table=TABLE, observe=report, stop=stop)
    source = SourceSpec(kind="duckdb", location=f"duckdb://{quote(str(database))}")
    results = []
    for name, (output_format, compression, _) in _OUTPUTS.items():
        place = directory / name
        request = Request(
            source=source,
            selection=Selection(table=parse_table(TABLE)),
            output=OutputOptions(
                destination=str(place),
                format=output_format,
                compression=compression,
                overwrite=True,
            ),
            parallelism=parallelism or None,
        )
        totals = api.unload(request, observe=observe, stop=stop)["totals"]
        if stop():
            raise Interrupted(f"the {name} files were not verified", "run the same command again")
        verdict = api.verify(place, source, observe=observe)
        seconds, size = totals["seconds"], totals["bytes"]
        results.append(
            {
                "name": name,
                "rows": totals["rows"],
                "bytes": size,
                "seconds": seconds,
                "mb_per_second": size / 1e6 / seconds if seconds else 0.0,
                "directory": place,
                "verified": verdict["result"] == "ok",
            }
        )
    return {"database": database, "results": results}
