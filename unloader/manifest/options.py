"""What a manifest says of the options of a run: those that decided what was written."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from unloader.identity import ByIdentity
from unloader.json_fields import fields_of, from_json, to_json, values_getter
from unloader.manifest.asked import EncryptionRecord, OptionsRecord
from unloader.model import ConcurrencyOptions, EncryptionOptions
from unloader.request.options.fields import recorded
from unloader.resolve.resolved import ResolvedRun
from unloader.sources.options import every_option
from writers.codecs.libraries import codec_library
from writers.model import ParquetFormat, TextFormat

_but_place: ByIdentity[OptionsRecord] = ByIdentity()
"""Tables of a run have all but their places in common."""


def options_record(run: ResolvedRun) -> OptionsRecord:
    """Return the options as the manifest has them."""
    request, output = run.request, run.output
    # Tables of which the manifest tells the same options have them put together once.
    told = (
        *_values(request, ("selection", "output", "settings")),
        *_values(request.selection, ("table", "query")),
        *_values(request.output, ("destination", "others")),
        output.format,
        output.compression,
        output.choice,
        output.transform,
        output.options.encryption,
    )
    record = _but_place.of(told, lambda: _common_options(run))
    places = output.options
    return replace(record, to=places.destinations if places.others else places.destination)


def _values(record: Any, without: tuple[str, ...]) -> tuple[Any, ...]:
    """Return what a record holds in its fields, but for some."""
    kind: type = type(record)
    return _values_of(kind, without)(record)


@cache
def _values_of(kind: type, without: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    return values_getter([name for name, *_ in fields_of(kind) if name not in without])


def _common_options(run: ResolvedRun) -> OptionsRecord:
    return from_json(OptionsRecord, to_json(options_json(run)), "the options")


def options_json(run: ResolvedRun) -> dict[str, Any]:
    """Return the options that decided what was written, by the names of the command line."""
    output, shape = run.output.options, run.output.spec("").format
    compression, choice = run.output.spec("").compression, run.output.choice
    found = recorded(every_option(), run.request)
    return {
        **found,
        "to": list(output.destinations) if output.others else output.destination,
        "format": format_name(shape),
        "compression": to_builtins(compression),
        "compression_library": codec_library(format_name(shape), compression),
        "compression_choice": choice.to_json() if choice else None,
        "parallelism": found["parallelism"] or 0,
        **_concurrency(run.request.concurrency, found),
        "dialect": to_builtins(shape),
        **_encryption(output.encryption),
        **_transform(run),
    }


def _concurrency(known: ConcurrencyOptions | None, found: dict[str, Any]) -> dict[str, Any]:
    """Return what was said of the number of workers, and nothing of what was not."""
    if known is None:
        return {}
    slow = found["slow_parallelism"] if known.slow_between else None
    return {"adaptive": known.adaptive or None, "slow_parallelism": slow}


def _encryption(options: EncryptionOptions | None) -> dict[str, Any]:
    if options is None:
        return {}
    record = EncryptionRecord(
        method="parquet" if options.keyed else "age",
        recipients=options.recipients,
        key_name=options.key_name,
        key_proof=options.key_proof,
    )
    return {"encryption": to_json(record)}


def _transform(run: ResolvedRun) -> dict[str, Any]:
    if run.output.transform is None:
        return {}
    return {"transform": to_json(run.output.transform.options.steps)}


def format_name(output_format: TextFormat | ParquetFormat) -> str:
    """Return the name of a format on the command line."""
    return "csv" if isinstance(output_format, TextFormat) else "parquet"
