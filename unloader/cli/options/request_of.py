"""From the values of options to a `Request`, and what several options decide together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import astuple, replace

from unloader.cli.options.rules import has_parquet_key
from unloader.cli.options.tables import is_of_several, table_names
from unloader.errors import UsageError
from unloader.model import (
    ClusterOptions,
    ConcurrencyOptions,
    EncryptionOptions,
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
from unloader.redaction import holds_secret, learn
from unloader.request.masks import parse_key_place, parse_mask
from unloader.request.name_templates import DEFAULT_TABLE_TEMPLATE
from unloader.request.names import parse_table
from unloader.request.options import fields_of
from unloader.request.settings import ADAPTIVE, at_home, parse_assignment, plain_name
from unloader.resolve.places import in_directory_of_part
from unloader.secrets.encryption_keys import identity_reference, parquet_key_reference
from unloader.storage.place_names import destination_kind, is_kept, is_one_stream
from unloader.transforms.masking_keys import key_place
from unloader.transforms.model import (
    DEFAULT_KEY,
    CastColumn,
    ComputeColumn,
    ConstantColumn,
    KeepColumns,
    MaskingKey,
    RenameColumns,
    Step,
    TransformOptions,
)
from writers import registry
from writers.encryption.age import IDENTITY, RECIPIENT
from writers.errors import FormatError
from writers.files.checksums import open_digest
from writers.files.regular import read_named
from writers.model import Compression, ParquetFormat, TextFormat
from writers.parquet.options import check_options
from writers.text import dialects
from writers.text.dialects import dialect

_NO_DELIMITED_TEXT = {
    "delimiter": "",
    "enclosure": "",
    "enclose": "none",
    "escape": "none",
    "header": False,
    "trailing_delimiter": False,
    "record_length_digits": 0,
}
"""The marks of a dialect in records of fixed width."""


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
    # Values of a route or of a [[table]] were not checked before.
    refuse_repeated(source.location, values)
    selection = {**fields_of(Selection, values), "table": _table(values)}
    if "limit_rows" not in values:
        # The --sample of a command that measures is another option.
        selection.pop("sample", None)
    stream = is_one_stream(destination_kind(values.get("to") or ()))
    concurrency, cluster = fields_of(ConcurrencyOptions, values), fields_of(ClusterOptions, values)
    if values["parallelism"] == ADAPTIVE and not stream:
        concurrency["adaptive"] = True
    fixed = values["fixed"] and values["format"] != "parquet"
    whole = fields_of(Request, values)
    if values["verify"] == "full" and not is_kept(tuple(values.get("to") or ("",))):
        # From a variable set for all jobs; an option of this job is refused.
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


def _format(values: Mapping[str, Any]) -> TextFormat | ParquetFormat:
    """Return the layout of the files: of text a dialect, which single options override."""
    if values["format"] == "parquet":
        return ParquetFormat(**fields_of(ParquetFormat, values))
    found = fields_of(TextFormat, values)
    if values["timestamp_format"] is not None or values["timestamp_tz_format"] is not None:
        # The user's format decides which digits are left out.
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
    try:
        if isinstance(options.compression, Compression):
            registry.check(options.format, options.compression)
        open_digest(options.checksum)
        if isinstance(options.format, ParquetFormat):
            check_options(options.format)
            registry.check_encoder(options.format, options.encoder)
        if isinstance(options.format, TextFormat):
            # The fields of records of fixed width are decided when the columns are known.
            (dialects.check_fixed if fixed else dialects.check)(options.format)
            registry.check_encoder(options.format, options.encoder)
    except FormatError as error:
        # All of it was known from the options alone.
        raise UsageError(error.message, error.hint) from error


def _transform(values: Mapping[str, Any]) -> TransformOptions | None:
    """Return the steps that change the rows, in the order of the options on the help page.

    Raises:
        UsageError: A key has two places, or a place has a wrong form.
        ConfigError: A key is missing.
    """
    steps = tuple(_steps(values))
    if not steps:
        return None
    places = _places(values.get("mask_key") or ())
    names = TransformOptions(steps=steps).key_names
    keys = tuple(key_place(name, places.get(name, "")) for name in names)
    return TransformOptions(steps=steps, keys=keys)


def given_keys(items: Iterable[str]) -> tuple[MaskingKey, ...]:
    """Return where the keys are found that `--mask-key` names.

    Raises:
        UsageError: A key has two places, or a place has a wrong form.
        ConfigError: The credential is missing.
    """
    return tuple(key_place(name, place) for name, place in _places(items).items())


def _places(items: Iterable[str]) -> dict[str, str]:
    """Return the places of keys by their names."""
    found: dict[str, str] = {}
    for name, place in map(parse_key_place, items):
        place = _expanded(place)
        if found.setdefault(name or DEFAULT_KEY, place) != place:
            raise UsageError(
                f"--mask-key names two places for the key {name or DEFAULT_KEY}",
                "give the keys names, such as --mask-key customers=file:PATH",
            )
    return found


def _steps(values: Mapping[str, Any]) -> Iterator[Step]:
    for name, text in _pairs(values, "expression"):
        yield ComputeColumn(compute=name, sql=text)
    for name, text in _pairs(values, "constant"):
        yield ConstantColumn(constant=name, value=text)
    for name, text in _pairs(values, "cast"):
        yield CastColumn(cast=name, to=text.strip())
    yield from map(parse_mask, values.get("mask") or ())
    renames = tuple((name, plain_name(text.strip())) for name, text in _pairs(values, "rename"))
    if renames:
        yield RenameColumns(rename=renames)
    kept = values.get("output_columns")
    if kept:
        yield KeepColumns(keep=tuple(map(plain_name, kept)))


def _pairs(values: Mapping[str, Any], key: str) -> Iterator[tuple[str, str]]:
    return map(parse_assignment, values.get(key) or ())


def _expanded(place: str) -> str:
    """Return a place with the home directory in it, which no shell has seen behind `file:`."""
    kind, _, path = place.partition(":")
    try:
        return f"file:{at_home(path)}" if kind == "file" else place
    except ValueError as error:
        raise UsageError(f"the file of --mask-key: {error}", "write the path in full") from None


_FORM = "give a public key, which begins with age1, or @FILE"


def encryption_of(values: Mapping[str, Any]) -> EncryptionOptions | None:
    """Return how the files are encrypted; None if they are not. The rules between options hold.

    Raises:
        UsageError: A recipient is not a public key, or its file cannot be read.
    """
    if "encrypt_to" not in values:
        return None  # A command that writes no rows.
    if values["format"] != "parquet":
        recipients = tuple(dict.fromkeys(_recipients(values["encrypt_to"])))
        if not recipients:
            return None
        identity = keys_at(values).identity
        return EncryptionOptions(recipients=recipients, identity=identity)
    if not has_parquet_key(values["parquet_key_file"]):
        return None
    key, name = keys_at(values).key, values["parquet_key_name"] or ""
    return EncryptionOptions(key=key, key_name=name)


def keys_at(values: Mapping[str, Any]) -> EncryptionOptions:
    """Return where the keys of files that are encrypted already are found, if anywhere."""
    return EncryptionOptions(
        key=parquet_key_reference(_path(values["parquet_key_file"])),
        identity=identity_reference(_path(values["decrypt_with"])),
    )


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def _recipients(written: Iterable[str]) -> Iterator[str]:
    for item in written:
        if item.startswith("@"):
            yield from _in_file(Path(item[1:]))
        else:
            yield _recipient(item)


def _in_file(path: Path) -> Iterator[str]:
    try:
        text = read_named(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(
            f"the file of --encrypt-to cannot be read: {reason}", "check its path"
        ) from None
    lines = [line.strip() for line in text.splitlines()]
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        raise UsageError(f"the file {path} of --encrypt-to names no recipient", _FORM)
    yield from map(_recipient, keys)


def _recipient(text: str) -> str:
    text = text.strip()
    if text.upper().startswith(IDENTITY):
        learn(text)
        raise UsageError(
            "--encrypt-to has a private key, which every user of this machine may have seen",
            "give the public key, which `age-keygen -y FILE` shows, and make a new private one",
        )
    if not text.startswith(RECIPIENT):
        raise UsageError(
            "a value of --encrypt-to is not a public key of age, and is not shown", _FORM
        )
    return text


_NEVER_SHOWN = ("session_sql", "on_success", "on_failure")
"""Options in no log and no manifest: a statement may need a password, a command a token."""


def refuse_repeated(location: str, values: Mapping[str, Any]) -> None:
    """Refuse what holds a secret itself: it would go into the manifest and the plan.

    Hiding it there would not do: a condition with `***` in it means other rows.

    Args:
        location: Of the source.
        values: Every option by its name with underscores.

    Raises:
        UsageError: One holds it.
    """
    for name, value in (("the source URL", location), *values.items()):
        if name not in _NEVER_SHOWN and any(map(holds_secret, _texts(value))):
            what = name if name == "the source URL" else "--" + name.replace("_", "-")
            raise UsageError(
                f"{what} holds the password of the source, or another secret that is in a file or "
                "a variable of the environment; it would be shown and recorded",
                "take it out; if it is there by chance, change the secret",
            )


def _texts(value: object) -> Iterator[str]:
    """Yield the texts in a value, such as the pairs of a step or a route."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, Mapping):
        yield from _texts(tuple(value.values()))
    elif isinstance(value, Struct):
        yield from _texts(astuple(value))
