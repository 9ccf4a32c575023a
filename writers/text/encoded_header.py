"""The header in the most usual dialects, made without loading the plain encoder.

Those are the dialects that servers know, too: one-character marks, doubling, UTF-8. The rules are
those of `writers.text.enclosing` cut down to that, and a test holds the two against each other. It
saves the import of Arrow's compute functions, which takes longer than planning a table.
"""

from __future__ import annotations

from collections.abc import Sequence

from writers.model import TextFormat


def is_simple(text_format: TextFormat) -> bool:
    """Return whether the rules here cover the dialect."""
    return (
        len(text_format.delimiter) == 1
        and len(text_format.enclosure) == 1
        and text_format.enclose != "none"
        and text_format.escape == "double"
        and text_format.record_length_digits == 0
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
    special = {text_format.delimiter, mark, "\r", "\n", *text_format.eol}
    if (
        text_format.enclose != "minimal"
        or special & set(name)
        or name == text_format.null
        or (single and name == "\\.")
    ):
        return mark + name.replace(mark, mark * 2) + mark
    return name
