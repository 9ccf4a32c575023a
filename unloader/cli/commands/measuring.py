"""Commands that measure or calculate before a run: codecs, preflight and size."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from unloader.cli.display import render
from unloader.cli.display.render import megabytes, megabytes_per_second
from unloader.cli.options import rules
from unloader.cli.options.command import declared, given
from unloader.cli.options.request_of import connect_to, request_of
from unloader.cli.options.source_argument import SourceArgument, source_argument
from unloader.cli.signals import stop_on_signals
from unloader.cli.watching import display_for
from unloader.errors import UsageError
from unloader.events import PhaseStarted
from unloader.model import SourceSpec
from unloader.nouns import counted
from unloader.resolve.resolution import prepared
from unloader.selection.asked import TablesRequest
from unloader.tuning import codec_choice, preflight_measuring, sizing
from unloader.tuning.ceilings import PARTS, check_saveable, save_ceilings
from unloader.tuning.sizing_basis import basis_of

if TYPE_CHECKING:
    from unloader.tuning.ceilings import Ceilings
    from unloader.tuning.codec_choice import CodecReport
    from unloader.tuning.sizing import Sizing


@declared(
    "codecs",
    "Measure codecs on a sample of the rows of a table.",
    """
    unloader codecs duckdb:///data/sales.db --table ORDERS --format parquet
    unloader codecs oracle://scott@db01:1521/SALES --table ORDERS --to /extract \\
        --parallelism 32
    unloader codecs postgresql://etl@db01/sales --table public.orders --json
    """,
)
@source_argument(plans=False)
@click.pass_context
def codecs(context: click.Context, /, argument: SourceArgument, **values: Any) -> None:
    """Measure the cost and the gain of each codec on a sample of the rows of SOURCE.

    The command takes the options of run. For each codec it shows the ratio, the speed on one core,
    and the size and elapsed time of 10^9 bytes of output. The time is for this disk and this
    parallelism. The command also shows the choice of --compression fastest, balanced and smallest.
    It takes about ten seconds.
    """
    rules.validate(values, given(context))
    job = request_of(values, connect_to(argument.url, values, given(context)))
    budget = codec_choice.SampleBudget(bytes=values["sample"])
    with (
        display_for(values) as display,
        stop_on_signals(display.stopping) as stop,
        prepared(TablesRequest.one(job), stop=stop, observe=display) as ready,
    ):
        display(PhaseStarted(phase="measuring"))
        found = codec_choice.report(ready.tables[0], budget=budget, stop=stop)
    empty = "the table has no rows to measure"
    render.answer(values, found, lambda: _codecs_page(found) if found.codecs else empty)


def _codecs_page(found: CodecReport) -> str:
    heads = (
        *("codec", ">ratio", ">MB/s per core", ">CPU s/GB", ">bytes per GB"),
        *(">seconds per GB", "limit", "preset", "library"),
    )
    lines = (
        (
            each.compression.label,
            f"{each.ratio:.3f}",
            megabytes(each.bytes_per_cpu_second or None, 0),
            f"{each.compress_cpu_seconds_per_gb:.2f}",
            render.size(each.predicted_bytes),
            f"{each.predicted_seconds:.3g}",
            each.limit,
            ", ".join(name for name, it in found.presets.items() if it == each.compression),
            each.library,
        )
        for each in found.codecs
    )
    sample, disk = found.sample, found.disk_bytes_per_second
    speed = f"{megabytes_per_second(disk)} into {', '.join(found.disks)}"
    units = f"{sample.units} of {sample.of_units} work units"
    workers, cores = counted(found.parallelism, "worker"), counted(found.cores, "core")
    facts = (
        ("sample", f"{counted(sample.rows, 'row')}, {render.size(sample.bytes)} from {units}"),
        ("fetch", f"{_rate(sample.bytes, sample.fetch_seconds)} per worker"),
        ("encode", f"{_rate(sample.bytes, sample.encode_cpu_seconds)} per core"),
        ("disk", speed if disk else "not measured"),
        ("seconds for", f"10^9 bytes before compression, {workers} on {cores}"),
        (
            "seconds are",
            "the largest of CPU s / cores in use, slowest stage of a worker / workers, "
            "bytes / disk speed",
        ),
    )
    return f"{render.table(heads, lines)}\n\n{render.facts(facts)}"


def _rate(size: int, seconds: float) -> str:
    return megabytes_per_second(size / seconds) if seconds else "not measurable"


@declared(
    "preflight",
    "Measure the ceilings of disk, source, encoder and connection.",
    """
    unloader preflight oracle://scott@db01:1521/SALES --table ORDERS \\
        --to /disk1/x,/disk2/x --parallelism 32 --save ceilings.json
    unloader preflight --to /extract --disk-bytes 8GiB
    unloader preflight postgresql://etl@db01/sales --table T --network db01:7077
    unloader preflight postgresql://etl@db01/sales --table public.orders \\
        --without disk --json
    """,
)
@source_argument(plans=False, required=False)
@click.pass_context
def preflight(context: click.Context, /, argument: SourceArgument, **values: Any) -> None:
    """Measure the ceilings of a run before it starts.

    The disks are written with the buffers, checksum and sync of a run. Workers fetch rows of
    SOURCE and drop them. The encoder and each codec work on a sample of the rows. Small statements
    measure the round trip. All written files are removed. A figure that cannot be measured is left
    blank, with the reason. Without SOURCE, only the disks of --to and --network are measured.

    The command takes the options of run. It reads and writes at full speed: do not run it beside
    other work.
    """
    own = given(context)
    if values["save"] is not None and not values["save"].strip():
        raise UsageError("--save is empty", "give it a file, or leave it out")
    for name in ("disk_seconds", "source_seconds"):
        if not 0 < values[name] <= 3600:
            raise UsageError(
                f"--{name.replace('_', '-')} is {values[name]:g}",
                "give a number of seconds above 0, at most 3600",
            )
    parts = tuple(part for part in PARTS if part not in values["without"])
    if wrong := set(values["without"]).difference(PARTS):
        near = get_close_matches(wrong.pop(), PARTS, n=1)
        meant = f"did you mean {near[0]}?" if near else f"use {', '.join(PARTS)}"
        raise UsageError("--without names an unknown part", meant)
    if not parts:
        raise UsageError("--without leaves out everything", "leave one of its items out")
    source = SourceSpec(kind="", location="")
    if argument.url:
        rules.validate(values, own)
        source = connect_to(argument.url, values, own)
    else:
        for name in ("table", "query", "columns", "exclude", "where", "partition", "levels"):
            if name in own:
                raise UsageError(
                    f"--{name} needs a SOURCE", "write unloader preflight SOURCE, or leave it out"
                )
        if not values["to"] and not values["network"]:
            raise UsageError(
                "there is nothing to measure", "give a SOURCE with --table, or --to, or both"
            )
        # All other rules are the rules of a run.
        rules.validate({**values, "table": "T", "query": None}, own)
    job = request_of(values, source)
    if not values["to"]:
        job = replace(job, output=replace(job.output, destination=""))
    budget = preflight_measuring.Budget(
        parts=parts,
        listeners=tuple(dict.fromkeys(values["network"] or ())),
        cluster=job.cluster if job.uses_cluster else None,
        levels=tuple(sorted(values["levels"] or ())),
        disk_bytes=values["disk_bytes"],
        disk_seconds=values["disk_seconds"],
        disk_rounds=values["rounds"],
        source_seconds=values["source_seconds"],
        sample_bytes=values["sample"],
    )
    if budget.cluster is not None and not budget.listeners:
        raise UsageError("--cluster needs --network", "give a listener, or leave --cluster out")
    # The other parts are of this machine.
    job = replace(job, cluster=None)
    saved = None if values["save"] is None else Path(values["save"])
    if saved is not None:
        check_saveable(saved)
    with display_for(values) as display, stop_on_signals(display.stopping) as stop:
        found = preflight_measuring.Preflight(job, budget, display, stop).run()
    if saved is not None:
        save_ceilings(saved, found)
    render.answer(values, found, lambda: "\n\n".join(filter(None, _preflight_parts(found))))


def _preflight_parts(found: Ceilings) -> Iterator[str]:
    """Yield all measurements, part by part, and the missing ones with the reason."""
    machine, how = found.machine, found.writing
    past = ", without the page cache" if how.direct_io else ""
    buffers = f"{how.overlap_buffers} buffers of {render.size(how.overlap_buffer)}"
    facts = (
        ("machine", f"{machine.name}, {machine.cores} cores, {machine.cpus} CPUs usable"),
        ("processor", machine.model or render.UNKNOWN),
        ("workers of a run", render.count(found.parallelism)),
        ("writing", f"{buffers}, {how.checksum}, each file synced{past}"),
    )
    yield render.folded_facts(facts)
    disks = (*found.disks, *((found.together,) if found.together else ()))
    if disks:
        yield render.table(
            ("disk", ">files at once", ">written", ">MB/s", ">lowest", ">highest", "file system"),
            (
                (
                    " + ".join(disk.directories),
                    disk.writers,
                    render.size(disk.bytes),
                    *map(megabytes, (disk.bytes_per_second, disk.lowest, disk.highest)),
                    ", ".join(dict.fromkeys(f"{m.type} on {m.point}" for m in disk.mounts if m))
                    or None,
                )
                for disk in disks
            ),
        )
    if found.source is not None:
        yield render.table(
            (*(">workers", ">rows/s", ">MB/s", ">rows/s per worker", ">CPU s per million rows"),),
            (
                (
                    str(level.parallelism),
                    f"{level.rows_per_second:,.0f}",
                    megabytes(level.bytes_per_second),
                    f"{level.rows_per_second / level.parallelism:,.0f}",
                    None
                    if level.cpu_seconds is None
                    else f"{level.cpu_seconds / level.rows * 1e6:.2f}",
                )
                for level in found.source.levels
            ),
        )
    if (encoder := found.encoder) is not None:
        rate = encoder.bytes_per_cpu_second
        shown = f"{megabytes_per_second(rate)} per core" if rate else render.UNKNOWN
        rows = counted(encoder.sample_rows, "row")
        sample = f"{rows} of {encoder.row_bytes:.1f} bytes on average, before compression"
        yield render.facts(((f"{encoder.format} encoder", shown), ("sample", sample)))
        yield render.table(
            ("codec", ">ratio", ">MB/s per core"),
            (
                (
                    each.codec if each.level is None else f"{each.codec}:{each.level}",
                    f"{each.ratio:.3f}",
                    megabytes(each.bytes_per_cpu_second),
                )
                for each in encoder.codecs
            ),
        )
    if found.round_trip_seconds is not None:
        yield render.facts((("round trip", f"{found.round_trip_seconds * 1000:.3f} ms"),))
    if (network := found.network) is not None:
        ways = f"{counted(network.connections, 'connection')} from {', '.join(network.peers)}"
        if network.machines > 1:
            ways += f" to {network.machines} Dask workers"
        trip = f"{network.round_trip_seconds * 1000:.3f} ms"
        speed = f"{megabytes_per_second(network.bytes_per_second)}, {ways}"
        on = f"{network.row_bytes:,.1f} bytes" if network.row_bytes else render.UNKNOWN
        pairs = (("network", speed), ("network round trip", trip), ("row on the network", on))
        yield render.facts(pairs)
    if found.not_measured:
        missing = ((each.what, each.reason) for each in found.not_measured)
        yield render.table(("not measured", "reason"), missing)


@declared(
    "size",
    "Calculate the machine that an unload needs.",
    """
    unloader size --rows 10G --row-bytes 165 --window 1h --from /extract/orders
    unloader size --rows 2G --window 6h --from sweep.csv --cpu-ratio 1.4 --json
    unloader size --rows 10G --window 1h --cores 16 --from sweep.json
    """,
)
def size(**values: Any) -> None:
    """Calculate workers, cores, disks and hours from measured figures.

    Give rows, their width and the time, or take them from a finished run. The speed of an unload
    comes from --from: a finished run, the points of a sweep, or ceilings. The answer shows the
    limits and the assumptions. Only these files are read.
    """
    if values["window"] is not None and not values["window"]:
        raise UsageError("--window is 0", "give the time in which the unload must end, such as 1h")
    if values["discount"] >= 1:
        raise UsageError("--discount leaves nothing", "give less than 100%")
    if not values["cpu_limit"]:
        raise UsageError("--cpu-limit leaves no CPU", "give more than 0%")
    if any(not each.strip() for each in values["from"]):
        raise UsageError("--from is empty", "give it a file, or leave it out")
    same = (
        *("rows", "row_bytes", "cores", "disks", "cpu_ratio", "discount", "cpu_limit"),
        *("disk_rate", "measured_cores"),
    )
    question = sizing.Question(
        window_seconds=values["window"], **{name: values[name] for name in same}
    )
    basis = basis_of(values["from"])
    found = sizing.Reckoning(question, basis).run()
    render.answer(values, found, lambda: "\n\n".join(_size_parts(found)))


def _size_parts(found: Sizing) -> Iterator[str]:
    """Yield the answer, the limits, the space of the output, and the basis."""
    yield "\n".join(render.folded(found.answer, render.terminal_width()))
    if (there := found.on_cores) is not None:
        limits = ((name, megabytes(rate)) for name, rate in there.limits.items())
        yield render.table(("limit", ">MB/s of text"), limits)
    yield render.table(
        ("format", "codec", ">space", ">disks", ">cores to compress"),
        (
            (
                *(space.format, space.codec, render.size(space.bytes), space.disks),
                None if space.extra_cores is None else f"{space.extra_cores:.2f}",
            )
            for space in found.space
        ),
    )
    yield render.facts(
        (
            *(("measured", each) for each in found.origins),
            *(("assumed", each) for each in found.assumptions),
        )
    )
