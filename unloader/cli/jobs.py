"""From option values to a JobSpec: the last place where anybody knows of options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from partition_planner.model import PlanLimits
from unloader.errors import UnloaderError, translate
from unloader.file_names import DEFAULT_TABLE_TEMPLATE, DEFAULT_TEMPLATE
from unloader.model import (
    JobSpec,
    OutputOptions,
    RetryOptions,
    SeatOptions,
    Selection,
    SourceSpec,
    ValueOptions,
)
from unloader.names import parse_table
from writers.model import Compression, OutputSpec, ParquetFormat, TextFormat

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
    "date_format": "date_format",
    "timestamp_format": "timestamp_format",
    "timestamp_tz_format": "timestamp_tz_format",
    "decimal_separator": "decimal_separator",
    "binary_format": "binary",
    "boolean_format": "boolean",
}
"""Option to field of TextFormat."""


def job_spec(values: Mapping[str, Any], source: SourceSpec) -> JobSpec:
    """Return the job that the options ask for; the rules between them hold already.

    Raises:
        UsageError: The table's name cannot be read.
        ConfigError: The format contradicts itself.
    """
    return JobSpec(
        source=source,
        selection=selection(values),
        output=output_options(values),
        limits=PlanLimits(
            parallelism=values["parallelism"],
            split=values["split"],
            unit_bytes=values["unit_bytes"],
        ),
        seats=SeatOptions(
            numa=values["numa"],
            nodes=values["numa_nodes"] or (),
            placement=values["placement"],
            bind=values["bind"],
            memory_policy=values["memory_policy"],
        ),
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
        verify=values["verify"],
    )


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
        ConfigError: The format and its options or its compression do not go together.
    """
    per_table = values["file_per"] == "table"
    destination = values.get("to") or ""
    return OutputOptions(
        destination=destination,
        output=_checked(
            OutputSpec(
                directory=destination,
                format=_parquet(values) if values["format"] == "parquet" else _text(values),
                compression=_compression(values),
                file_size_bytes=0 if per_table else values["file_size"],
                buffer_bytes=values["overlap_buffer"],
                buffers=values["overlap_buffers"],
            )
        ),
        file_per=values["file_per"],
        file_name=values["file_name"]
        or (DEFAULT_TABLE_TEMPLATE if per_table else DEFAULT_TEMPLATE),
        overwrite=values.get("overwrite", False),
    )


def _checked(spec: OutputSpec) -> OutputSpec:
    from writers import dialects, registry
    from writers.errors import FormatError

    try:
        registry.check(spec.format, spec.compression)
        if isinstance(spec.format, TextFormat):
            dialects.check(spec.format)
    except FormatError as error:
        raise translate(error) or UnloaderError(str(error)) from error
    return spec


def _compression(values: Mapping[str, Any]) -> Compression:
    chosen = values["compression"]
    if isinstance(chosen, Compression):
        return chosen
    return Compression(codec="zstd" if values["format"] == "parquet" else "none")


def _parquet(values: Mapping[str, Any]) -> ParquetFormat:
    return ParquetFormat(
        row_group_rows=values["row_group_rows"],
        version=values["parquet_version"],
        dictionary=values["dictionary"],
        statistics=values["statistics"],
    )


def _text(values: Mapping[str, Any]) -> TextFormat:
    from writers.dialects import dialect

    chosen = {
        field: values[option]
        for option, field in _TEXT_FIELDS.items()
        if values[option] is not None
    }
    if {"timestamp_format", "timestamp_tz_format"} & chosen.keys():
        chosen["fractions"] = "mask"  # a mask of the user's own decides what is left out
    return replace(dialect(values["dialect"]), **chosen)
