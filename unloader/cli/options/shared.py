"""The options that commands share, as decorators; what they mean together is in `rules`."""

from __future__ import annotations

from typing import Any

import click

from unloader.cli.options import option_types as types
from unloader.cli.options.format_options import output_format, parquet_format, text_format
from unloader.cli.options.option import Bundle, flatten, option_section
from unloader.cli.streams import was_closed
from unloader.errors import UsageError


def _refuse_password(ctx: click.Context, option: click.Parameter, value: Any) -> None:
    if value is not None:
        raise click.UsageError(
            "a password on the command line can be read by every user of this machine; set "
            "UNLOADER_PASSWORD, or use --password-file or --password-prompt",
            ctx,
        )


def _answer_json(ctx: click.Context, option: click.Parameter, value: bool) -> bool:
    if value and was_closed(1):
        raise UsageError(
            "--json has no standard output to write to",
            "send it to a file or a reader",
        )
    if value and ctx.obj is not None:
        ctx.obj.json = True
    return value


def _answer_beside_data(ctx: click.Context, option: click.Parameter, value: Any) -> tuple[str, ...]:
    """Keep the JSON of an error off a standard output that is for data."""
    places: tuple[str, ...] = flatten(ctx, option, value)
    if "-" in places and ctx.obj is not None:
        ctx.obj.data_on_stdout = True
    return places


_source = option_section("Source")
_what = option_section("What to unload")
_session = option_section("Database session")
_output = option_section("Output")
_speed = option_section("Speed and memory")
_seats = option_section("Seats on the machine")
_safety = option_section("Safety")
_telling = option_section("Progress and result")

password = Bundle(
    _source(
        "--password-file",
        path=True,
        type=click.Path(dir_okay=False),
        metavar="FILE",
        help="Read the password from the first line of FILE. Comes before UNLOADER_PASSWORD.",
    ),
    _source("--password-prompt", is_flag=True, help="Ask for the password; needs a terminal."),
    _source(
        "--password",
        hidden=True,
        expose_value=False,
        callback=_refuse_password,
        help="Refused: a command line is no place for a secret.",
    ),
)

connection = Bundle(
    _session(
        "--session-sql",
        type=types.STATEMENTS,
        multiple=True,
        callback=flatten,
        help="Run this statement in every session before it reads. Repeat it for more. Oracle.",
    ),
    _session(
        "--call-timeout",
        type=types.SECONDS,
        default="0",
        help="Longest wait in seconds for one answer of the database; 0 is no limit. Oracle.",
    ),
    _session(
        "--client-library",
        path=True,
        metavar="DIR",
        help="Connect through Oracle's client library in DIR (thick mode); auto is where it is "
        "usually found. Oracle.",
    ),
    _session(
        "--enable-row-security",
        is_flag=True,
        help="Unload the rows that policies of row level security let the user see; without it a "
        "policy that may hide rows is an error. PostgreSQL.",
    ),
)

reading = Bundle(
    _session(
        "--scn",
        type=click.IntRange(min=1),
        metavar="N",
        help="Read at this system change number instead of the present one. Oracle.",
    ),
    _session(
        "--fetch",
        type=click.Choice(["auto", "arrow", "tuples"]),
        default="auto",
        help="Let the driver build columns, or take rows of values and build them here. Oracle.",
    ),
    _session(
        "--parallel-query",
        is_flag=True,
        help="Let the database use parallel servers of its own for our statements. Oracle.",
    ),
    _session(
        "--direct-read/--no-direct-read",
        default=True,
        help="Ask for reads past the database's buffer cache. Oracle.",
    ),
)

values = Bundle(
    _what(
        "--number-without-precision",
        type=types.NUMBER_FORM,
        default="string",
        help="In Parquet, a NUMBER without precision becomes exact text, a decimal(p,s) that must "
        "hold every value, or a double that may not. Oracle.",
    ),
    _what(
        "--nanoseconds",
        type=click.Choice(["string", "timestamp"]),
        default="string",
        help="In Parquet, timestamps with 7 to 9 digits become exact text, or nanoseconds, which "
        "end in 2262. Oracle.",
    ),
    _what(
        "--zone-columns",
        is_flag=True,
        help="In Parquet, add a column with the zone of each timestamp with time zone. Oracle.",
    ),
)

table = Bundle(
    _what(
        "--table",
        metavar="T",
        help="Table or view: NAME or SCHEMA.NAME, quoted if it is not plain.",
    )
)

as_text = Bundle(
    _what(
        "--as-text",
        type=types.GLOBS,
        multiple=True,
        callback=flatten,
        help="Write the columns that match one of these patterns as exact text. Separated by "
        "commas, or repeated.",
    )
)

selection = Bundle(
    table,
    _what("--query", metavar="SQL", help="Unload the result of this query instead of a table."),
    _what(
        "--columns",
        type=types.NAMES,
        multiple=True,
        callback=flatten,
        help="Only these columns, in this order. A pattern such as addr_* stands for all that "
        "match; in double quotes it is a name. Separated by commas, or repeated.",
    ),
    _what(
        "--exclude",
        type=types.NAMES,
        multiple=True,
        callback=flatten,
        help="All columns but these, by name or pattern. Separated by commas, or repeated.",
    ),
    _what("--where", metavar="SQL", help="Only the rows for which this condition holds."),
    _what(
        "--partition",
        type=types.GLOBS,
        multiple=True,
        callback=flatten,
        help="Only partitions that match one of these patterns. Separated by commas, or repeated.",
    ),
    as_text,
)

overwrite = _output(
    "--overwrite",
    is_flag=True,
    help="Replace an earlier run in the destination, once the new one is whole: its manifest, the "
    "files that the manifest names, and what a broken run left in _run. Other files are never "
    "touched; one that has a name of the new run stops it.",
)

pipe_timeout = _output(
    "--pipe-timeout",
    type=types.SECONDS,
    default="300",
    help="Longest wait in seconds for the reader of a pipe of --to; 0 is for ever.",
)

destination = Bundle(
    _output(
        "--to",
        path=True,
        required=True,
        type=types.PLACES,
        multiple=True,
        callback=_answer_beside_data,
        help="Directory of the output, made if it is missing; several share the files. - is "
        "standard output, pipe:PATH a named pipe, pipe:DIR/{unit}.csv one for each work unit. "
        "Separated by commas, or repeated.",
    ),
    overwrite,
    pipe_timeout,
)

planned_destination = Bundle(
    _output(
        "--to",
        path=True,
        type=types.PLACES,
        multiple=True,
        callback=flatten,
        help="As run takes it: shows where each work unit would go.",
    ),
    overwrite,
    pipe_timeout,
)

speed = Bundle(
    _speed(
        "--parallelism",
        type=types.PARALLELISM,
        default="auto",
        help="Number of workers; auto is the usable cores, never more than there are work units.",
    ),
    _speed(
        "--split",
        type=click.Choice(["auto", "partition", "range", "none"]),
        default="auto",
        help="How the table is cut into work units.",
    ),
    _speed(
        "--unit-bytes",
        type=types.SIZE_FROM_1,
        show_default="by the planner",
        help="Size in bytes above which a partition or table is cut (256MiB).",
    ),
    _speed(
        "--fetch-memory",
        type=types.SIZE_FROM_1,
        default="32MiB",
        help="Memory of one worker's array fetch, in bytes.",
    ),
    _speed(
        "--worker-memory",
        type=types.SIZE,
        default="0",
        help="Replace a worker whose process holds more than so many bytes after a work unit, "
        "before it gets the next one, so that a driver's leak cannot fill the machine; 0 is "
        "never. What counts is resident memory, mapped libraries included, of which a worker has "
        "about 160MiB at its start. Linux.",
    ),
    _speed(
        "--overlap-buffer",
        type=types.SIZE_FROM_1,
        default="4MiB",
        help="Size of one output buffer, in bytes.",
    ),
    _speed(
        "--overlap-buffers",
        type=click.IntRange(min=1),
        metavar="N",
        default=4,
        help="Number of output buffers of one worker.",
    ),
    _speed(
        "--direct-io",
        is_flag=True,
        help="Write past the page cache, where the file system can.",
    ),
)

seats = Bundle(
    _seats(
        "--numa",
        type=click.Choice(["auto", "off", "require"]),
        default="auto",
        help="Seat workers on NUMA nodes and bind them, or bind nothing (off), or fail where auto "
        "would do with less (require), as on one node.",
    ),
    _seats(
        "--numa-nodes",
        type=types.NUMBERS,
        show_default="all",
        help="Seat workers on these NUMA nodes only, for instance 0,2-3; all is every node whose "
        "CPUs we may use.",
    ),
    _seats(
        "--placement",
        type=click.Choice(["spread", "close"]),
        default="spread",
        help="Spread workers evenly over the nodes, by their CPUs, or fill the cores of one node "
        "after the other.",
    ),
    _seats(
        "--bind",
        type=click.Choice(["none", "node", "core"]),
        default="node",
        help="Bind each worker to nothing, to all CPUs of its node, or to one core of it.",
    ),
    _seats(
        "--memory-policy",
        type=click.Choice(["local", "preferred", "bind", "interleave"]),
        default="preferred",
        help="Where a worker's memory comes from: its node, and others once that is full "
        "(preferred); its node alone, and once that is full the kernel kills it (bind); all nodes "
        "with CPUs by turns (interleave); wherever it runs (local).",
    ),
    _seats(
        "--near",
        path=True,
        metavar="DEVICE",
        help="Prefer the NUMA node of this network interface, disk or path; for instance eth0, "
        "nvme0n1, /extract.",
    ),
)

safety = Bundle(
    _safety(
        "--consistency",
        type=click.Choice(["snapshot", "none"]),
        default="snapshot",
        help="Read everything at one point in time, or each work unit as it comes.",
    ),
    _safety(
        "--retries",
        type=click.IntRange(min=0),
        metavar="N",
        default=3,
        help="Further attempts at a work unit that failed.",
    ),
    _safety(
        "--retry-delay",
        type=types.SECONDS,
        default="1",
        help="Seconds before the first further attempt; doubled before each next one.",
    ),
    _safety(
        "--stall-timeout",
        type=types.SECONDS,
        default="300",
        help="Seconds without progress after which an attempt counts as failed. 0 is never.",
    ),
    _safety(
        "--verify",
        type=click.Choice(["none", "count", "full"]),
        default="count",
        help="After the run: nothing, count rows in the source, or also read the files back.",
    ),
)

progress = Bundle(
    _telling(
        "--progress",
        type=click.Choice(["auto", "bar", "log", "none"]),
        default="auto",
        help="Progress on stderr; auto is a bar on a terminal and a log elsewhere.",
    ),
    _telling(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default="text",
        help="Lines of the log as text or as one JSON object each.",
    ),
    _telling(
        "--log-interval",
        type=types.SECONDS,
        default="30",
        help="Seconds between two lines of progress in the log.",
    ),
)

answer = Bundle(
    _telling(
        "--json",
        is_flag=True,
        callback=_answer_json,
        help="Write the result to stdout as one JSON object.",
    ),
    _telling("--quiet", is_flag=True, help="Write nothing but errors, and the result with --json."),
)

subject = Bundle(password, selection, values, connection, reading)
"""What is unloaded, and from where."""

manner = Bundle(output_format, text_format, parquet_format, speed, seats, safety)
"""How it is unloaded."""
