"""The ten columns of the reference table, each as DuckDB SQL over a row number `i`.

The published order is VARCHAR2, DATE, NUMBER, VARCHAR2, NUMBER with two decimals, DATE, CHAR(8),
VARCHAR2, NUMBER, VARCHAR2. Three records show the values; the names of the columns were not
published, so the ones here are ours. CHAR is kept with its blanks, as Oracle hands it over.

Text is random letters and digits, 62 of them, and compresses no better than that. All randomness is
DuckDB's `hash()` of the row number, which is the same in DuckDB 1.4 and 2.0.

An Oracle DATE has whole seconds from year 1 to 9999 and beyond. It becomes TIMESTAMP, which holds
them exactly. TIMESTAMP_S would do so too, but DuckDB (1.4 and 2.0) turns it into nanoseconds for
functions such as strftime, which fails on every date after 2262.
"""

from __future__ import annotations

from typing import NamedTuple

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
PAIRS = "".join(first + second for first in _LETTERS for second in _LETTERS)
"""Every pair of the letters: the text is drawn two characters at a time."""

_PAIRS_PER_HASH = 5
_SALTS = 64


class ReferenceColumn(NamedTuple):
    """One column: its name, its DuckDB type, and SQL for its value in row `i`."""

    name: str
    type: str
    expression: str


_YEAR_1 = -62_135_596_800
_YEAR_10000 = 253_402_300_800
"""Seconds from 1970 to 0001-01-01 and to the end of 9999-12-31."""


def _number(salt: int, span: int) -> str:
    """Return SQL for a number from 0 to `span` - 1; each of the 64 salts is a series of its own.

    The salt is part of what is hashed: `hash(i, salt)` would be `hash(i)` with certain bits turned
    over, the same bits in every row.
    """
    return f"(hash(i * {_SALTS} + {salt}) % {span})::BIGINT"


def _text(salt: int, shortest: int, longest: int) -> str:
    """Return SQL for random letters and digits; takes three salts, from `salt` on."""
    pairs = []
    for pair in range((longest + 1) // 2):
        nth_hash, nth_pair = divmod(pair, _PAIRS_PER_HASH)
        bits = f"(hash(i * {_SALTS} + {salt + 1 + nth_hash}) >> {nth_pair * 12})"
        place = f"({bits} % {len(PAIRS) // 2})::BIGINT * 2 + 1"
        pairs.append(f"substr(getvariable('pairs'), {place}, 2)")
    length = f"{shortest} + {_number(salt, longest - shortest + 1)}"
    return f"left(concat({', '.join(pairs)}), {length})"


def _date(salt: int, first: int, edge: int, edge_row: int) -> str:
    """Return SQL for a second from `first` to the end of 9999; `edge` in one row of a thousand."""
    seconds = f"{first} + {_number(salt, _YEAR_10000 - first)}"
    at = f"CASE WHEN i % 1000 = {edge_row} THEN {edge} ELSE {seconds} END"
    return f"make_timestamp(({at}) * 1000000)"


COLUMNS = (
    ReferenceColumn("REF_KEY", "VARCHAR", _text(0, 5, 15)),
    ReferenceColumn("VALID_FROM", "TIMESTAMP", _date(5, _YEAR_1, _YEAR_1, 1)),
    ReferenceColumn("ITEM_NO", "DECIMAL(13,0)", f"100000000000 + {_number(6, 3_900_000_000_000)}"),
    ReferenceColumn("LABEL", "VARCHAR", _text(10, 5, 15)),
    ReferenceColumn(
        "AMOUNT", "DECIMAL(12,2)", f"(10000000 + {_number(7, 90_000_000)})::DECIMAL(12,0) * 0.01"
    ),
    ReferenceColumn("VALID_TO", "TIMESTAMP", _date(8, 0, _YEAR_10000 - 1, 0)),
    ReferenceColumn("CODE", "VARCHAR", f"rpad({_text(20, 5, 8)}, 8, ' ')"),
    ReferenceColumn("GRADE", "VARCHAR", _text(30, 5, 10)),
    ReferenceColumn(
        "SERIAL_NO", "DECIMAL(15,0)", f"100000000000000 + {_number(9, 900_000_000_000_000)}"
    ),
    ReferenceColumn("REMARK", "VARCHAR", _text(40, 10, 20)),
)
"""In table order. The SQL needs the DuckDB variable `pairs` to hold `PAIRS`.

A record in the `sqlldr-var` dialect has 101 bytes beside the text and the two numbers of varying
length, 21.8 for those two (12.8 and 9) and 42.5 for the four texts: 165.3.
"""

KEY = COLUMNS[0]
"""The column whose hash decides the partition."""
