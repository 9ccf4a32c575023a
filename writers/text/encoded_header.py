"""The header in the most usual dialects, made without loading the plain encoder.

Those are the dialects that servers know, too: one-character marks, doubling, UTF-8. The rules are
those of `writers.text.enclosing` cut down to that, and a test holds the two against each other. It
saves the import of Arrow's compute functions, which takes longer than planning a table.
"""

from __future__ import annotations

from collections.abc import Sequence

from writers.model import TextFormat
from writers.text.marks import enclosed_for, not_bare


def is_simple(text_format: TextFormat) -> bool:
    """Return whether the rules here cover the dialect."""
    return (
        len(text_format.delimiter) == 1
        and len(text_format.enclosure) == 1
        and text_format.enclose != "none"
        and text_format.escape == "double"
        and text_format.record_length_digits == 0
        and not (text_format.header and (text_format.refused or text_format.eol_ends_always))
        and text_format.encoding.lower() in ("utf-8", "utf8")
    )


def simple_header(names: Sequence[str], text_format: TextFormat) -> bytes:
    """Return the record of column names in a simple dialect, or nothing if it has no header."""
    if not text_format.header:
        return b""
    end = text_format.delimiter if text_format.trailing_delimiter else ""
    fields = text_format.delimiter.join(
        _field(name, text_format, single=len(names) == 1) for name in names
    )
    return (fields + end + text_format.eol).encode()


def _field(name: str, text_format: TextFormat, *, single: bool) -> str:
    mark = text_format.enclosure
    if (
        text_format.enclose != "minimal"
        or name in not_bare(text_format, single=single)
        or any(each in name for each in enclosed_for(text_format))
    ):
        return mark + name.replace(mark, mark * 2) + mark
    return name
