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
    OutputOptions,
    Request,
    Route,
    SeatOptions,
    SessionOptions,
    Setting,
    SourceSpec,
)
from unloader.request.file_names import DEFAULT_TABLE_TEMPLATE
from unloader.request.names import parse_table
from unloader.request.options.fields import build, field_values
from unloader.request.options.output import FORMAT
from unloader.request.options.parsing import ADAPTIVE
from unloader.request.options.transforming import TRANSFORMING
from unloader.resolve.outputs.directories import in_directory_of_part
from unloader.sources.options import every_option
from unloader.storage.kinds import destination_kind, is_kept, is_one_stream
from writers.model import Compression, ParquetFormat, TextFormat

if TYPE_CHECKING:
    from writers.codecs.choice import Preset

_NO_DELIMITED_TEXT = {
    f"{FORMAT}.delimiter": "",
    f"{FORMAT}.enclosure": "",
    f"{FORMAT}.enclose": "none",
    f"{FORMAT}.escape": "none",
    f"{FORMAT}.header": False,
    f"{FORMAT}.trailing_delimiter": False,
    f"{FORMAT}.record_length_digits": 0,
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
    fields = {
        **field_values(every_option(), values),
        **_compression(values),
        **_destination(values),
        "output.encryption": encryption_of(values),
        **_transform(values),
        **_layout(values),
        **_limits(values),
        **_table(values),
        "settings": settings,
    }
    if "limit_rows" not in values:
        # What the --sample of a command that measures says is of the measuring.
        fields.pop("selection.sample", None)
    fields = {path: value for path, value in fields.items() if not path.startswith("source.")}
    request: Request = build(Request, {**fields, "source": source}, every_option())
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
    return SessionOptions(**_below("source.session", values))


def seats_of(values: Mapping[str, Any]) -> SeatOptions:
    """Return how workers are to be placed."""
    return SeatOptions(**_below("seats", values))


def _below(path: str, values: Mapping[str, Any]) -> dict[str, Any]:
    prefix = f"{path}."
    fields = field_values(every_option(), values).items()
    return {name.removeprefix(prefix): each for name, each in fields if name.startswith(prefix)}


def _table(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the one table; which of several is decided once the source has listed them."""
    names = table_names(values)
    one = len(names) == 1 and not is_of_several(values)
    return {"selection.table": parse_table(names[0]) if one else None}


def _compression(values: Mapping[str, Any]) -> dict[str, Any]:
    chosen: Compression | Preset | None = values["compression"]
    codec: Any = "zstd" if values["format"] == "parquet" else "none"
    return {"output.compression": Compression(codec=codec) if chosen is None else chosen}


def _destination(values: Mapping[str, Any]) -> dict[str, Any]:
    places = values.get("to") or ("",)
    found: dict[str, Any] = {
        "output.destination": places[0],
        "output.others": tuple(places[1:]),
    }
    per_table = values["file_per"] == "table"
    stream = not is_kept(tuple(places))
    if stream:
        found["output.file_per"] = "unit"
    if stream or per_table:
        found["output.file_size_bytes"] = 0
    if per_table and not values["file_name"]:
        found["output.file_name"] = DEFAULT_TABLE_TEMPLATE
    if stream and values["verify"] == "full":
        # From a variable set for all jobs; what was asked for by name is refused.
        found["verify"] = "count"
    return found


def _transform(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is done to the rows; nothing where nothing says so, which costs no import."""
    if not any(values.get(option.key) for option in TRANSFORMING):
        return {}
    from unloader.cli.options.transforming import transform_of

    return {"output.transform": transform_of(values)}


def _layout(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what follows for a text format from masks and from records of fixed width."""
    if values["format"] == "parquet":
        return {}
    found: dict[str, Any] = {}
    if values["timestamp_format"] is not None or values["timestamp_tz_format"] is not None:
        # A mask of the user's own decides what is left out.
        found[f"{FORMAT}.fractions"] = "mask"
    if values["dialect"] == "mysql" and values["encoding"] == "iso8859-1":
        # MySQL's latin1 is this code page.
        found[f"{FORMAT}.encoding"] = "cp1252"
    return found | (_NO_DELIMITED_TEXT if values["fixed"] else {"fixed": None})


def _limits(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the limits of a plan for one stream: one worker, and of Parquet one unit."""
    if not is_one_stream(destination_kind(values.get("to") or ())):
        adaptive = values["parallelism"] == ADAPTIVE
        return {"concurrency.adaptive": True} if adaptive else {}
    whole = values["format"] == "parquet" and values["split"] == "auto"
    return {"limits.parallelism": 1, **({"limits.split": "none"} if whole else {})}


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
