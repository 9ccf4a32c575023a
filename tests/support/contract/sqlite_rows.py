"""Rows of SQLite with values at both ends of each storage class."""

from __future__ import annotations

import math

TOP = 2**63 - 1
COLUMNS = "id INTEGER PRIMARY KEY, i INTEGER, r REAL, s TEXT, b BLOB"
EDGES: list[tuple[object, ...]] = [
    (1, TOP, 1.5, "x", b"y"),
    (2, None, None, None, None),
    (3, -TOP - 1, math.inf, "", b""),
    (4, 0, 5e-324, "a\0b", b"\0"),
    (5, -1, 1.7976931348623157e308, "ü\U0001f600\n\"',;\r\n", bytes(range(256))),
    (TOP, 2**53 + 1, 0.1 + 0.2, "NULL", b"\xff"),
]
MIXED: list[tuple[object, ...]] = [("", None), (1, "1.50"), (0.5, "z"), (-0.0, None)]
MIXED_EXPECTED: list[tuple[object, ...]] = [
    ("", None, "!"),
    ("1", "1.5", "1!"),
    ("0.5", "z", "0.5!"),
    ("-0", None, "0.0!"),
]
"""Of the view `SELECT a, n, a || '!'` over `a` without a type and `n NUMERIC`."""
