"""Formats by name: the known formats, their codecs and their writers.

Other packages add a format through the entry-point group `unloader.formats`: the name is the
format's, the value a class made with `(spec, schema, stem)` that implements
`writers.base.Writer` and has the attributes `extension` (without a dot) and `codecs` (names).
Its `OutputSpec.format` object carries the name in an attribute `format_name`. Nothing is
imported before it is asked for.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, cast

from writers.codecs.compression import CODECS, LEVELS, check_codec, text_libraries
from writers.errors import FormatError
from writers.files.publish import text_extension
from writers.model import PLAIN, ParquetFormat, TextFormat

if TYPE_CHECKING:
    import pyarrow as pa

    from writers.base import Writer
    from writers.model import Compression, EncoderChoice, Encryption, OutputSpec
    from writers.text.text_writer import EncodedTextWriter

FORMATS = {
    "csv": "writers.text.text_writer:TextWriter",
    "parquet": "writers.parquet.writer:ParquetWriter",
}
_LIBRARIES = {"csv": "writers.native.encoder", "parquet": "writers.parquet.native.pages"}

ENTRY_POINTS = "unloader.formats"


def _installed() -> dict[str, Any]:
    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


def formats() -> tuple[str, ...]:
    """Return the names of all formats, ours first."""
    return (*FORMATS, *sorted(_installed().keys() - FORMATS.keys()))


def open_writer(
    spec: OutputSpec, schema: pa.Schema, stem: str, *, writes_header: bool = True
) -> Writer:
    """Start the files `stem` of a unit; FormatError if the format is impossible for the schema.

    `writes_header` is off for text files that are joined.
    """
    make: Any = _load(name_of(spec.format))
    if isinstance(spec.format, TextFormat):
        return cast("Writer", make(spec, schema, stem, writes_header=writes_header))
    return cast("Writer", make(spec, schema, stem))


def open_encoded_writer(spec: OutputSpec, stem: str, header: bytes = b"") -> EncodedTextWriter:
    """Start the file of one work unit whose text arrives ready, after a header."""
    from writers.text.text_writer import EncodedTextWriter

    return EncodedTextWriter(spec, stem, header)


def load(output_format: str | TextFormat | ParquetFormat) -> None:
    """Import what writes files of a format, before its first use."""
    name = name_of(output_format)
    _load(name)
    if name in _LIBRARIES:
        import_module("xxhash")  # The usual checksum.
        import_module(_LIBRARIES[name]).why_not()  # Loads it.


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
    return "parquet" if name == "parquet" else str(_load(name).extension)


def check(output_format: str | TextFormat | ParquetFormat, compression: Compression) -> None:
    """Refuse a codec this format cannot use, or a level that codec does not have."""
    name = name_of(output_format)
    check_codec(name, compression, CODECS.get(name) or tuple(_load(name).codecs))


def check_encoder(output_format: TextFormat | ParquetFormat, choice: EncoderChoice) -> None:
    """Refuse the native encoder of a format if its library cannot be used."""
    if choice == "native":
        import_module(_LIBRARIES[name_of(output_format)]).check_choice(choice)


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


def name_of(output_format: object) -> str:
    """Return the name of a format that is given by name, by its options or by its class."""
    if isinstance(output_format, TextFormat):
        return "csv"
    if isinstance(output_format, ParquetFormat):
        return "parquet"
    name = getattr(output_format, "format_name", output_format)
    # Ours first: looking for other packages takes milliseconds, which each work unit would pay.
    if isinstance(name, str) and (name in FORMATS or name in _installed()):
        return name
    raise FormatError(f"format {name!r} does not exist.", f"use one of {', '.join(formats())}.")


def _load(name: str) -> Any:
    if name in FORMATS:
        module, _, attribute = FORMATS[name].partition(":")
        return getattr(import_module(module), attribute)
    return _installed()[name].load()
