"""What is written of a value in CSV, in words: Arrow's types say nothing to a reader of text."""

from __future__ import annotations

_FORMS = (
    (("int", "uint"), "whole number"),
    (("decimal",), "number, all digits"),
    (("float", "double", "halffloat"), "number, shortest exact"),
    (("bool",), "true or false"),
    (("date",), "date, ISO 8601"),
    (("time32", "time64"), "time, ISO 8601"),
    (("duration", "month_day_nano", "interval"), "interval"),
    (("binary", "large_binary", "fixed_size_binary"), "binary, hexadecimal"),
    (("list", "large_list", "fixed_size_list", "struct", "map"), "JSON"),
    (("null",), "always NULL"),
)
"""How names of Arrow types begin, and what the default dialect makes of them."""


def lossless_word(lossless: bool | str) -> str:
    """Return whether a column has the source's values, or that it has others on purpose."""
    return lossless if isinstance(lossless, str) else "yes" if lossless else "no"


def csv_form(output_type: str) -> str:
    """Return what the default dialect writes of a type of Arrow; `text` for all that is text."""
    if output_type.startswith("timestamp"):
        return "timestamp with offset, ISO 8601" if "tz=" in output_type else "timestamp, ISO 8601"
    for beginnings, form in _FORMS:
        if output_type.startswith(beginnings):
            return form
    return "text"
