"""`unloader codecs`: what each codec makes of the user's own rows, measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from msgspec import to_builtins

from unloader import api
from unloader.cli.display import render
from unloader.cli.display.progress import display_for
from unloader.cli.options import rules
from unloader.cli.options.command import JobCommand, declared_options
from unloader.cli.options.parameter import given
from unloader.cli.options.request_of import connect_to, request_of
from unloader.cli.options.source_argument import SourceArgument, source_argument
from unloader.cli.signals import stop_on_signals
from unloader.nouns import counted
from unloader.tuning.codec_choice import SampleBudget
from writers.codecs.choice import label

if TYPE_CHECKING:
    from unloader.tuning.codec_choice import CodecReport


@click.command(
    "codecs",
    cls=JobCommand,
    short_help="Measure codecs on a sample of the rows of a table.",
    epilog="""\b
    Examples:
      unloader codecs duckdb:///data/sales.db --table ORDERS --format parquet
      unloader codecs oracle://scott@db01:1521/SALES --table ORDERS --to /extract \\
          --parallelism 32
      unloader codecs postgresql://etl@db01/sales --table public.orders --json
    """,
)
@source_argument(plans=False)
@declared_options("codecs")
@click.pass_context
def command(context: click.Context, /, argument: SourceArgument, **values: Any) -> None:
    """Measure the cost and the gain of each codec on a sample of the rows of SOURCE.

    The command takes the options of run. For each codec it shows the ratio, the speed on one core,
    and the size and elapsed time of 10^9 bytes of output. The time is for this disk and this
    parallelism. The command also shows the choice of --compression fastest, balanced and smallest.
    It takes about ten seconds.
    """
    rules.validate(values, given(context))
    job = request_of(values, connect_to(argument.url, values, given(context)))
    budget = SampleBudget(bytes=values["sample"])
    with display_for(values) as display, stop_on_signals(display.stopping) as stop:
        found = api.measure_codecs(job, budget=budget, observe=display, stop=stop)
    if values["json"]:
        render.emit_json(to_builtins(found))
    elif not values["quiet"]:
        render.emit(_page(found) if found.codecs else "the table has no rows to measure")


def _page(found: CodecReport) -> str:
    lines = render.table(
        (
            *("codec", ">ratio", ">MB/s per core", ">CPU s/GB", ">bytes per GB"),
            *(">seconds per GB", "limit", "preset", "library"),
        ),
        (
            (
                label(each.compression),
                f"{each.ratio:.3f}",
                f"{rate / 1e6:,.0f}" if (rate := each.bytes_per_cpu_second) else render.UNKNOWN,
                f"{each.compress_cpu_seconds_per_gb:.2f}",
                render.size(each.predicted_bytes),
                f"{each.predicted_seconds:.3g}",
                each.limit,
                ", ".join(name for name, it in found.presets.items() if it == each.compression),
                each.library or render.UNKNOWN,
            )
            for each in found.codecs
        ),
    )
    sample, disk = found.sample, found.disk_bytes_per_second
    speed = f"{render.megabytes_per_second(disk)} into {', '.join(found.disks)}"
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
    return f"{lines}\n\n{render.facts(facts)}"


def _rate(size: int, seconds: float) -> str:
    return render.megabytes_per_second(size / seconds) if seconds else "not measurable"
