"""How long the values of a PostgreSQL type can be."""

from __future__ import annotations

from unloader.sources.declared import Declared, decimal_digits, one_of, text_length

_TEXTS = ("CHARACTER VARYING", "VARCHAR", "CHARACTER", "CHAR", "BPCHAR")
_PADDED = ("CHARACTER", "CHAR", "BPCHAR")
_NAME_BYTES = 63
"""Of PostgreSQL's `name`, but for one built with another NAMEDATALEN."""
_LONGEST = {
    '"CHAR"': 1,
    "MONEY": 21,
    "TIME WITH TIME ZONE": 24,
    "TIME WITHOUT TIME ZONE": 15,
    "UUID": 36,
}
"""Types that are read as text of at most so many ASCII characters."""


def declared(source_type: str) -> Declared:
    """Return what a type says of the length of its values."""
    if source_type == "NAME":
        return Declared(utf8_bytes=_NAME_BYTES)
    if source_type == "DATE":
        return Declared(dated=True)
    if source_type.startswith("TIMESTAMP"):
        return Declared(zone="offset" if "WITH TIME ZONE" in source_type else None)
    return (
        text_length(source_type, _TEXTS, _PADDED)
        or decimal_digits(source_type)
        or one_of(source_type, _LONGEST)
    )
