"""From option values to a Request: the last place where anybody knows of options.

Each option's value goes to the field that its declaration names. Only what several options decide
together is written out here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from unloader.cli.options.encryption import encryption_of
from unloader.cli.options.repeated_password import refuse_repeated
from unloader.cli.options.tables import is_of_several, table_names
from unloader.errors import UsageError
from unloader.model import (
    ClusterOptions,
    ConcurrencyOptions,
    FixedWidths,
    OutputOptions,
    PlanOptions,
    Request,
    RetryOptions,
    Route,
    SeatOptions,
    Selection,
    SessionOptions,
    Setting,
    SourceSpec,
    TableName,
    ValueOptions,
)
from unloader.request.file_names import DEFAULT_TABLE_TEMPLATE
from unloader.request.job_options import TRANSFORMING
from unloader.request.names import parse_table
from unloader.request.options import fields_of
from unloader.request.value_types import ADAPTIVE
from unloader.resolve.places import in_directory_of_part
from unloader.storage.place_names import destination_kind, is_kept, is_one_stream
from writers.model import Compression, ParquetFormat, TextFormat

if TYPE_CHECKING:
    from unloader.transforms.model import TransformOptions

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


def request_of(
    values: Mapping[str, Any], source: SourceSpec, settings: tuple[Setting, ...] = ()
) -> Request:
    """Return the request that the options make; the rules between them hold already.

    Args:
        values: Every option by its name with underscores.
        source: Where the table is.
        settings: Which of the options were set, and where.

    Raises:
        UsageError: The table's name cannot be read, the format contradicts itself, or a value holds
            the password of the source.
    """
    # Those of a route or of an entry for tables have not been looked at before.
    refuse_repeated(source.location, values)
    selection = {**fields_of(Selection, values), "table": _table(values)}
    if "limit_rows" not in values:
        # What the --sample of a command that measures says is of the measuring.
        selection.pop("sample", None)
    stream = is_one_stream(destination_kind(values.get("to") or ()))
    concurrency, cluster = fields_of(ConcurrencyOptions, values), fields_of(ClusterOptions, values)
    if values["parallelism"] == ADAPTIVE and not stream:
        concurrency["adaptive"] = True
    fixed = values["fixed"] and values["format"] != "parquet"
    whole = fields_of(Request, values)
    if values["verify"] == "full" and not is_kept(tuple(values.get("to") or ("",))):
        # From a variable set for all jobs; what was asked for by name is refused.
        whole["verify"] = "count"
    request = Request(
        source=source,
        selection=Selection(**selection),
        output=_output(values),
        limits=PlanOptions(**_limits(values, is_stream=stream)),
        seats=seats_of(values),
        retry=RetryOptions(**fields_of(RetryOptions, values)),
        values=ValueOptions(**fields_of(ValueOptions, values)),
        fixed=FixedWidths(**fields_of(FixedWidths, values)) if fixed else None,
        concurrency=ConcurrencyOptions(**concurrency) if concurrency else None,
        cluster=ClusterOptions(**cluster) if cluster else None,
        settings=settings,
        **whole,
    )
    _check_format(request.output, fixed=request.fixed is not None)
    request = request if request.output.filter is None else _with_filter(request)
    return in_directory_of_part(request)


def _with_filter(request: Request) -> Request:
    """Return the request of an output with a filter, which may look at any column there is."""
    only = Route(
        name="",
        output=request.output,
        columns=request.selection.columns,
        exclude=request.selection.exclude,
        fixed=request.fixed,
    )
    selection = replace(request.selection, columns=(), exclude=())
    return replace(request, selection=selection, routes=(only,), fixed=None)


def session_of(values: Mapping[str, Any]) -> SessionOptions:
    """Return how sessions are opened; what a command has no option for keeps its default."""
    return SessionOptions(**fields_of(SessionOptions, values))


def seats_of(values: Mapping[str, Any]) -> SeatOptions:
    """Return how workers are to be placed."""
    return SeatOptions(**fields_of(SeatOptions, values))


def _table(values: Mapping[str, Any]) -> TableName | None:
    """Return the one table; which of several is decided once the source has listed them."""
    names = table_names(values)
    return parse_table(names[0]) if len(names) == 1 and not is_of_several(values) else None


def _output(values: Mapping[str, Any]) -> OutputOptions:
    """Return where the rows go and how they are written."""
    places = tuple(values.get("to") or ("",))
    codec: Any = "zstd" if values["format"] == "parquet" else "none"
    found = fields_of(OutputOptions, values)
    per_table, stream = values["file_per"] == "table", not is_kept(places)
    if stream:
        found["file_per"] = "unit"
    if stream or per_table:
        found["file_size_bytes"] = 0
    if per_table and not values["file_name"]:
        found["file_name"] = DEFAULT_TABLE_TEMPLATE
    return OutputOptions(
        destination=places[0],
        others=places[1:],
        format=_format(values),
        compression=values["compression"] or Compression(codec=codec),
        encryption=encryption_of(values),
        transform=_transform(values),
        **found,
    )


def _transform(values: Mapping[str, Any]) -> TransformOptions | None:
    """Return what is done to the rows; None where nothing says so, which costs no import."""
    if not any(values.get(key) for key in TRANSFORMING):
        return None
    from unloader.cli.options.transforming import transform_of

    return transform_of(values)


def _format(values: Mapping[str, Any]) -> TextFormat | ParquetFormat:
    """Return the layout of the files: of text a dialect, which single options override."""
    if values["format"] == "parquet":
        return ParquetFormat(**fields_of(ParquetFormat, values))
    from writers.text.dialects import dialect

    found = fields_of(TextFormat, values)
    if values["timestamp_format"] is not None or values["timestamp_tz_format"] is not None:
        # A mask of the user's own decides what is left out.
        found["fractions"] = "mask"
    if values["dialect"] == "mysql" and values["encoding"] == "iso8859-1":
        # MySQL's latin1 is this code page.
        found["encoding"] = "cp1252"
    fixed = _NO_DELIMITED_TEXT if values["fixed"] else {}
    return replace(dialect(values["dialect"]), **{**found, **fixed})


def _limits(values: Mapping[str, Any], *, is_stream: bool) -> dict[str, Any]:
    """Return the limits of a plan: one stream has one worker, and of Parquet one unit."""
    found = fields_of(PlanOptions, values)
    if is_stream:
        found["parallelism"] = 1
        if values["format"] == "parquet" and values["split"] == "auto":
            found["split"] = "none"
    return found


def _check_format(options: OutputOptions, *, fixed: bool) -> None:
    from writers import registry
    from writers.errors import FormatError
    from writers.files.checksums import open_digest
    from writers.parquet.encoders import check_choice as check_parquet_choice
    from writers.parquet.options import check_options
    from writers.text import dialects
    from writers.text.encoders import check_choice

    try:
        if isinstance(options.compression, Compression):
            registry.check(options.format, options.compression)
        open_digest(options.checksum)
        if isinstance(options.format, ParquetFormat):
            check_options(options.format)
            check_parquet_choice(options.encoder)
        if isinstance(options.format, TextFormat):
            # The fields of records of fixed width are decided when the columns are known.
            (dialects.check_fixed if fixed else dialects.check)(options.format)
            check_choice(options.encoder)
    except FormatError as error:
        # All of it was known from the options alone.
        raise UsageError(error.message, error.hint) from error
