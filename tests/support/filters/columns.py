"""Columns of every type, in row groups of very different values: constant, NULL, narrow, mixed."""

from __future__ import annotations

import math
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa

GROUP_ROWS = 5


def _whole(bits: int, signed: bool) -> list[int]:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    middle = [each for each in (-1, 0, 1, 127, 128, 255, 32768) if low <= each <= high]
    return [low, low + 1, *middle, high // 2 + 1, high - 1, high]


def _decimals(precision: int, scale: int) -> list[Decimal]:
    most = 10**precision - 1
    return [
        Decimal((number < 0, tuple(map(int, str(abs(number)))), -scale))
        for number in (-most, -most // 2, -100, -1, 0, 1, 100, most // 2, most - 1, most)
    ]


FLOATS = [-math.inf, -1.5, -5e-324, -0.0, 0.0, 5e-324, 1.0, 1.7e308, math.inf, math.nan]
SINGLES = [-math.inf, -1.5, -0.0, 0.0, 1.0, 3.0e38, math.inf, math.nan]
TEXTS = [
    *("", " ", "9", "10", "a", "A", "abc", "abcdefgh", "abcdefgh\0", "é", "日本", "zz"),
    *("\ud7ff" * 17, "\U0010ffff" * 20, "a" * 4096, "a" * 4097, "m" + "\U0010ffff" * 2000),
]
BINARIES = [b"", b"\0", b"a", b"a\0", b"\x7f", b"\x80", b"\xff", b"\xff" * 20, b"\xff" * 4097]

POOLS: dict[pa.DataType, list[Any]] = {
    pa.bool_(): [False, True],
    **{
        kind: _whole(kind.bit_width, True)
        for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())
    },
    **{
        kind: _whole(kind.bit_width, False)
        for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
    },
    pa.float32(): SINGLES,
    pa.float64(): FLOATS,
    **{
        pa.decimal128(precision, scale): _decimals(precision, scale)
        for precision, scale in ((4, 1), (9, 2), (18, 0), (18, 18), (19, 4), (38, 0), (38, 37))
    },
    pa.string(): TEXTS,
    pa.large_string(): TEXTS,
    pa.binary(): BINARIES,
    pa.binary(3): [b"\0\0\0", b"abc", b"\x7f\xff\xff", b"\x80\0\0", b"\xff\xff\xff"],
    pa.date32(): [-(10**6), -719163, -1, 0, 1, 20_000, 2_932_896, 10**7],
    pa.time32("s"): [0, 1, 43_200, 86_399],
    pa.time32("ms"): [0, 1, 43_200_000, 86_399_999],
    pa.time64("us"): [0, 1, 43_200_000_000, 86_399_999_999],
    pa.timestamp("s"): [-(10**10), -1, 0, 1, 10**9, 2 * 10**11],
    pa.timestamp("ms"): [-(10**13), -1, 0, 1, 10**12, 2 * 10**14],
    pa.timestamp("us"): [-(2**62), -1, 0, 1, 10**15, 2**63 - 2],
    pa.timestamp("us", "UTC"): [-(2**62), -1, 0, 1, 10**15, 2**63 - 2],
    pa.timestamp("ns"): [-(2**63) + 2, -1, 0, 1, 10**18, 2**63 - 2],
}
"""Values of each type; days, times and moments as integers. 2^63-1 microseconds are infinity in DuckDB."""


WITHOUT_BLOOM_FILTER = {kind.id for kind in (pa.bool_(), pa.float32(), pa.float64())}


def _texts(values: list[Any]) -> list[str]:
    return [f"{value:f}" if isinstance(value, Decimal) else str(value) for value in values]


_SQL_TEXTS = [text for text in TEXTS if "\0" not in text]
_MOMENTS = [
    "1969-12-31 23:59:59",
    "1970-01-01 00:00:00",
    "2026-03-29 01:30:00",
    "9999-12-31 23:59:59",
]
_ENDS = ["290309-12-22 (BC) 00:00:00", "0044-03-15 (BC) 12:00:00", "294247-01-10 04:00:54.775806"]
SQL_TEXTS: dict[str, list[str]] = {
    "BOOLEAN": ["false", "true"],
    **{
        f"{unsigned}{kind}": _texts(_whole(bits, not unsigned))
        for unsigned in ("", "U")
        for kind, bits in (
            ("TINYINT", 8),
            ("SMALLINT", 16),
            ("INTEGER", 32),
            ("BIGINT", 64),
            ("HUGEINT", 128),
        )
    },
    "FLOAT": _texts(SINGLES),
    "DOUBLE": _texts(FLOATS),
    "DECIMAL(4, 1)": _texts(_decimals(4, 1)),
    "DECIMAL(18, 0)": _texts(_decimals(18, 0)),
    "DECIMAL(38, 10)": _texts(_decimals(38, 10)),
    "VARCHAR": _SQL_TEXTS,
    "BLOB": ["".join(f"\\x{byte:02X}" for byte in value) for value in BINARIES],
    "DATE": ["5877642-06-25 (BC)", "0044-03-15 (BC)", "1969-12-31", "1970-01-01", "5881580-07-10"],
    "TIME": ["00:00:00", "00:00:00.000001", "12:30:00", "23:59:59.999999"],
    "TIMESTAMP": [*_MOMENTS, *_ENDS],
    "TIMESTAMP WITH TIME ZONE": [f"{text}+00" for text in (*_MOMENTS, _ENDS[2])],
    "TIMESTAMP_S": _MOMENTS,
    "TIMESTAMP_MS": [f"{text}.5" for text in _MOMENTS],
    "TIMESTAMP_NS": ["1677-09-22 00:00:00", *_MOMENTS[:3], "2262-04-11 23:47:16.854775805"],
    "INTERVAL": ["-1 day", "00:00:00.000001", "1 month", "13 months 2 days"],
    "TIME WITH TIME ZONE": ["00:00:00+00", "12:00:00-05", "23:59:59.5+15:59"],
    "UUID": [f"{digit * 8}-0000-4000-8000-000000000000" for digit in "07Ff"],
    "ENUM('zebra', 'ant', 'Bee', '')": ["zebra", "ant", "Bee", ""],
    "BIT": ["0", "1", "10", "0101010101"],
    "JSON": ['{"a": 1}', "[1, 2]", "null", '"x"'],
    "STRUCT(f DOUBLE, g FLOAT, i INTEGER)": [
        f"{{'f': {double}, 'g': {single}, 'i': {number}}}"
        for number, (double, single) in enumerate(zip(FLOATS, [*SINGLES, 1.5, "NULL"], strict=True))
    ],
}
"""Types of DuckDB, and texts that become their values."""


def arranged(pool: list[Any], groups: int, chance: random.Random) -> list[Any]:
    """Return values of row groups, some with one value, with NULL alone, or with neighbours."""
    found: list[Any] = []
    for number in range(groups):
        first = chance.randrange(len(pool))
        near = pool[first : first + 2]
        kinds = [near[:1], near, [*near, None], [None], pool, [*pool, None]]
        values = kinds[number % len(kinds)]
        found += [chance.choice(values) for _ in range(GROUP_ROWS)]
    return found


def table(kinds: list[pa.DataType], groups: int, seed: int) -> pa.Table:
    """Return a table with a column of each type, named by its number."""
    columns = {}
    for number, kind in enumerate(kinds):
        values = arranged(POOLS[kind], groups, random.Random(f"{seed} {kind}"))
        array: pa.Array
        if pa.types.is_temporal(kind):
            array = pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)
        else:
            array = pa.array(values, kind)
        columns[f"c{number}"] = array
    return pa.table(columns)
