"""Who encodes a Parquet file: the native library where it knows all of it, and pyarrow elsewhere.

Nothing is imported or loaded before it is asked for.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from writers.built_library import advice
from writers.errors import FormatError
from writers.parquet.arrow_file import ArrowFile

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from writers.files.sink import Sink
    from writers.model import EncoderChoice, OutputSpec, ParquetFormat
    from writers.parquet.native.file import NativeFile

    OpenFile = Callable[[Sink], ArrowFile | NativeFile]


def opener(
    schema: pa.Schema,
    spec: OutputSpec,
    parquet: ParquetFormat,
    paths: list[str],
    options: dict[str, Any],
) -> OpenFile:
    """Return what opens the files of one work unit, given a sink for each.

    Args:
        schema: Of every batch.
        spec: Its format is `parquet`.
        parquet: The format.
        paths: Of all columns in the file.
        options: How the columns are encoded; empty where there are no rows.
    """
    native = _native(schema, spec, parquet, options) if options else None
    return native or (lambda sink: ArrowFile(sink, schema, spec, parquet, paths, options))


def _native(
    schema: pa.Schema, spec: OutputSpec, parquet: ParquetFormat, options: dict[str, Any]
) -> OpenFile | None:
    if spec.encoder == "plain" or spec.encryption.keyed or why_not_native() is not None:
        return None
    from writers.parquet.native.chunks import plans_of
    from writers.parquet.native.file import NativeFile, prepared

    common = prepared(schema, parquet)
    plans = None if common is None else plans_of(common.forms, options)
    if common is None or plans is None:
        return None
    return partial(NativeFile, common=common, plans=plans, parquet=parquet)


def check_choice(choice: EncoderChoice) -> None:
    """Make sure that the encoder that was asked for by name can be used.

    Raises:
        FormatError: It is the native one, which cannot.
    """
    if choice != "native" or (reason := why_not_native()) is None:
        return
    raise FormatError(
        f"the native Parquet encoder cannot be used: {reason}.",
        f"{advice()}, or use --encoder plain.",
    )


def why_not_native() -> str | None:
    """Return why the native library cannot be used, None if it can; it is loaded."""
    from writers.parquet.native.library import why_not

    return why_not()
