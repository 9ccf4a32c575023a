"""The formats of files: their names, codecs and writers, which are imported on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from writers.codecs.compression import CODECS, LEVELS, check_codec, text_libraries
from writers.errors import FormatError
from writers.files.publish import text_extension
from writers.model import PLAIN, ParquetFormat, TextFormat

if TYPE_CHECKING:
    import pyarrow as pa

    from writers.model import Compression, Encryption, OutputSpec
    from writers.parquet.writer import ParquetWriter
    from writers.text.text_writer import EncodedTextWriter, TextWriter

    Writer: TypeAlias = TextWriter | ParquetWriter

FORMATS = tuple(CODECS)
_WRITERS = {
    "csv": ("writers.text.text_writer", "TextWriter", "writers.native.encoder"),
    "parquet": ("writers.parquet.writer", "ParquetWriter", "writers.parquet.native.pages"),
}
"""Of each format its writer, and the module that loads its native library."""


def open_writer(
    spec: OutputSpec, schema: pa.Schema, stem: str, *, writes_header: bool = True
) -> Writer:
    """Start the files `stem` of a unit; FormatError if the format is impossible for the schema.

    `writes_header` is off for text files that are joined.
    """
    module, name, _ = _WRITERS[name_of(spec.format)]
    more = {"writes_header": writes_header} if isinstance(spec.format, TextFormat) else {}
    return cast("Writer", getattr(import_module(module), name)(spec, schema, stem, **more))


def open_encoded_writer(spec: OutputSpec, stem: str, header: bytes = b"") -> EncodedTextWriter:
    """Start the file of one work unit whose text arrives ready, after a header."""
    from writers.text.text_writer import EncodedTextWriter

    return EncodedTextWriter(spec, stem, header)


def load(format_name: str) -> None:
    """Import what writes files of a format, before its first use."""
    module, _, library = _WRITERS[format_name]
    import_module(module)
    # A column of dates needs it. A worker that imported it itself took 60 ms of CPU.
    import_module("pyarrow.compute")
    import_module("xxhash")  # The usual checksum.
    import_module(library).why_not()  # Loads it.


def extension(
    output_format: str | TextFormat | ParquetFormat,
    compression: Compression,
    encryption: Encryption = PLAIN,
) -> str:
    """Return `csv`, `csv.gz`, `parquet` and so on; tabs make `tsv`, and encryption `.age`."""
    name = name_of(output_format)
    if name == "csv":
        form = output_format if isinstance(output_format, TextFormat) else TextFormat()
        return text_extension(form, compression, encryption)
    check(name, compression)
    return name


def check(output_format: str | TextFormat | ParquetFormat, compression: Compression) -> None:
    """Refuse a codec this format cannot use, or a level that codec does not have."""
    name = name_of(output_format)
    check_codec(name, compression, CODECS[name])


def check_native(output_format: TextFormat | ParquetFormat) -> None:
    """Refuse the native encoder of a format if its library cannot be used."""
    import_module(_WRITERS[name_of(output_format)][2]).check_choice("native")


def codecs() -> tuple[dict[str, Any], ...]:
    """Return each codec's `formats`, lowest and highest `levels`, and `library` for text."""
    return tuple(
        {
            "codec": codec,
            "formats": tuple(name for name, usable in CODECS.items() if codec in usable),
            "levels": levels,
            "library": text_libraries(codec),
        }
        for codec, levels in LEVELS.items()
    )


def name_of(output_format: str | TextFormat | ParquetFormat) -> str:
    """Return the name of a format that is given by its name or by its options."""
    if isinstance(output_format, TextFormat):
        return "csv"
    if isinstance(output_format, ParquetFormat):
        return "parquet"
    if output_format in CODECS:
        return output_format
    raise FormatError(
        f"format {output_format!r} does not exist.", f"use one of {', '.join(FORMATS)}."
    )
