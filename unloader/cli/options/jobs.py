"""From option values to a Request: the last place where anybody knows of options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from unloader.errors import UsageError
from unloader.model import (
    FixedWidths,
    OutputOptions,
    PlanOptions,
    Request,
    RetryOptions,
    SeatOptions,
    Selection,
    Setting,
    SourceSpec,
    ValueOptions,
    VerifyLevel,
)
from unloader.request.file_names import DEFAULT_TABLE_TEMPLATE, DEFAULT_TEMPLATE
from unloader.request.names import parse_table
from unloader.request.settings import parse_order, parse_width
from unloader.storage.kinds import destination_kind, is_one_stream
from writers.model import Compression, ParquetFormat, SortColumn, TextFormat

if TYPE_CHECKING:
    from writers.codecs.choice import Preset

_TEXT_FIELDS = {
    "delimiter": "delimiter",
    "enclosure": "enclosure",
    "enclose": "enclose",
    "escape": "escape",
    "null": "null",
    "eol": "eol",
    "header": "header",
    "trailing_delimiter": "trailing_delimiter",
    "record_length": "record_length_digits",
    "encoding": "encoding",
    "substitute": "substitute",
    "date_format": "date_format",
    "timestamp_format": "timestamp_format",
    "timestamp_tz_format": "timestamp_tz_format",
    "decimal_separator": "decimal_separator",
    "binary_format": "binary",
    "boolean_format": "boolean",
}
"""Option to field of TextFormat."""

_NO_DELIMITED_TEXT = {
    "delimiter": "",
    "enclosure": "",
    "enclose": "none",
    "escape": "none",
    "header": False,
    "trailing_delimiter": False,
    "record_length_digits": 0,
}
"""What is left of a dialect's marks in records of fixed width."""


def job_spec(
    values: Mapping[str, Any], source: SourceSpec, settings: tuple[Setting, ...] = ()
) -> Request:
    """Return the job that the options ask for; the rules between them hold already.

    Args:
        values: Every option by its name with underscores.
        source: Where the table is.
        settings: Which of the options were set, and where.

    Raises:
        UsageError: The table's name cannot be read, or the format contradicts itself.
    """
    return Request(
        source=source,
        selection=selection(values),
        output=output_options(values),
        limits=_limits(values),
        seats=seat_options(values),
        retry=RetryOptions(
            retries=values["retries"],
            delay_seconds=values["retry_delay"],
            stall_seconds=values["stall_timeout"],
        ),
        consistency=values["consistency"],
        values=ValueOptions(
            number_without_precision=values["number_without_precision"],
            nanoseconds=values["nanoseconds"],
            zone_columns=values["zone_columns"],
        ),
        fetch_bytes=values["fetch_memory"],
        worker_memory_bytes=values["worker_memory"],
        verify=_verification(values),
        fixed=_fixed(values),
        settings=settings,
    )


def seat_options(values: Mapping[str, Any]) -> SeatOptions:
    """Return how workers are to be placed."""
    return SeatOptions(
        numa=values["numa"],
        nodes=values["numa_nodes"] or (),
        placement=values["placement"],
        bind=values["bind"],
        memory_policy=values["memory_policy"],
        near=values["near"] or None,
    )


def _fixed(values: Mapping[str, Any]) -> FixedWidths | None:
    if not values["fixed"] or values["format"] == "parquet":
        return None
    return FixedWidths(given=tuple(map(parse_width, values["width"])))


def _limits(values: Mapping[str, Any]) -> PlanOptions:
    """Return how the table is cut; one stream has one worker, and Parquet in it one unit."""
    one_stream = is_one_stream(destination_kind(values.get("to") or ()))
    whole = one_stream and values["format"] == "parquet" and values["split"] == "auto"
    return PlanOptions(
        parallelism=1 if one_stream else values["parallelism"] or None,
        split="none" if whole else values["split"],
        unit_bytes=values["unit_bytes"],
    )


def _verification(values: Mapping[str, Any]) -> VerifyLevel:
    level: VerifyLevel = values["verify"]
    # From a variable set for all jobs; what was asked for by name is refused.
    streamed = destination_kind(values.get("to") or ()) != "directories"
    return "count" if streamed and level == "full" else level


def selection(values: Mapping[str, Any]) -> Selection:
    """Return what is to be unloaded."""
    table = values["table"]
    return Selection(
        table=None if table is None else parse_table(table),
        query=values["query"],
        columns=values["columns"],
        exclude=values["exclude"],
        where=values["where"],
        partitions=values["partition"],
        as_text=values["as_text"],
    )


def output_options(values: Mapping[str, Any]) -> OutputOptions:
    """Return where and how the output is written.

    Raises:
        UsageError: The format and its options or its compression do not go together.
    """
    per_table = values["file_per"] == "table"
    places = values.get("to") or ()
    destination = places[0] if places else ""
    stream = destination_kind(places) != "directories"
    options = OutputOptions(
        destination=destination,
        others=tuple(places[1:]),
        pipe_seconds=values.get("pipe_timeout", 0.0),
        format=_parquet(values) if values["format"] == "parquet" else _text(values),
        compression=_compression(values),
        file_size_bytes=0 if per_table or stream else values["file_size"],
        buffer_bytes=values["overlap_buffer"],
        buffers=values["overlap_buffers"],
        checksum=values["checksum"],
        direct_io=values["direct_io"],
        encoder=values["encoder"],
        file_per="unit" if stream else values["file_per"],
        file_name=values["file_name"]
        or (DEFAULT_TABLE_TEMPLATE if per_table else DEFAULT_TEMPLATE),
        overwrite=values.get("overwrite", False),
    )
    _check(options, fixed=values["fixed"])
    return options


def _check(options: OutputOptions, *, fixed: bool) -> None:
    from writers import registry
    from writers.errors import FormatError
    from writers.files.checksums import open_digest
    from writers.parquet.options import check_options
    from writers.text import dialects
    from writers.text.encoders import check_choice

    try:
        if isinstance(options.compression, Compression):
            registry.check(options.format, options.compression)
        open_digest(options.checksum)
        if isinstance(options.format, ParquetFormat):
            check_options(options.format)
        if isinstance(options.format, TextFormat):
            # The fields of records of fixed width are decided when the columns are known.
            (dialects.check_fixed if fixed else dialects.check)(options.format)
            check_choice(options.encoder)
    except FormatError as error:
        # All of it was known from the options alone.
        raise UsageError(error.message, error.hint) from error


def _compression(values: Mapping[str, Any]) -> Compression | Preset:
    chosen: Compression | Preset | None = values["compression"]
    if chosen is not None:
        return chosen
    return Compression(codec="zstd" if values["format"] == "parquet" else "none")


def _parquet(values: Mapping[str, Any]) -> ParquetFormat:
    return ParquetFormat(
        row_group_rows=values["row_group_rows"],
        version=values["parquet_version"],
        row_group_bytes=values["row_group_bytes"],
        data_page_version=values["data_page_version"],
        dictionary=values["dictionary"],
        byte_stream_split=values["byte_stream_split"],
        statistics=values["statistics"],
        bloom_filters=values["bloom_filter"],
        sorted_by=tuple(SortColumn(**parse_order(item)) for item in values["sorted_by"]),
    )


def _text(values: Mapping[str, Any]) -> TextFormat:
    from writers.text.dialects import dialect

    chosen = {
        field: values[option]
        for option, field in _TEXT_FIELDS.items()
        if values[option] is not None
    }
    if {"timestamp_format", "timestamp_tz_format"} & chosen.keys():
        chosen["fractions"] = "mask"  # a mask of the user's own decides what is left out
    chosen |= _NO_DELIMITED_TEXT if values["fixed"] else {}
    return replace(dialect(values["dialect"]), **chosen)
