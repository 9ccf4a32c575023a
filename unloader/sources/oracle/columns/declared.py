"""How long the values of an Oracle type can be."""

from __future__ import annotations

import re

from unloader.sources.readings import Declared, decimal_digits, one_of, text_length

_TEXTS = ("VARCHAR2", "NVARCHAR2", "CHAR", "NCHAR")
_PADDED = ("CHAR", "NCHAR")
_TIMESTAMP = re.compile(r"TIMESTAMP(?: ?\((\d+)\))?.*")
_MONTHS = re.compile(r"INTERVAL YEAR ?\((\d+)\) TO MONTH")
_SECONDS = re.compile(r"INTERVAL DAY ?\((\d+)\) TO SECOND ?\((\d+)\)")
_RAW = re.compile(r"RAW ?\((\d+)\)")


def declared(source_type: str) -> Declared:
    """Return what a type says of the length of its values."""
    if match := _TIMESTAMP.fullmatch(source_type):
        zone = "LOCAL TIME ZONE" in source_type
        return Declared(
            second_digits=int(match[1] or 9),
            zone="offset" if zone else "region" if "WITH TIME ZONE" in source_type else None,
        )
    if match := _MONTHS.fullmatch(source_type):
        return Declared(longest="+" + "9" * int(match[1]) + "-11")
    if match := _SECONDS.fullmatch(source_type):
        fraction = "." + "9" * int(match[2]) if int(match[2]) else ""
        return Declared(longest="+" + "9" * int(match[1]) + " 23:59:59" + fraction)
    if match := _RAW.fullmatch(source_type):
        return Declared(binary_bytes=int(match[1]))
    return (
        text_length(source_type, _TEXTS, _PADDED)
        or decimal_digits(source_type)
        or one_of(source_type, {"ROWID": 18})
    )
