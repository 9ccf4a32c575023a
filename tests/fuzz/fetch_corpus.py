"""Inputs for `fetch_target.cpp` to begin with: good responses of the test server's encoder.

Run by `run.sh` as: python fetch_corpus.py DIRECTORY
"""

from __future__ import annotations

import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1] / "support"), str(Path(__file__).parents[2])]

from oracle.responses import responses  # noqa: E402
from oracle_server.model import Moment, Type  # noqa: E402

from unloader.sources.oracle.native import decoder as columns  # noqa: E402

NUMBER = Type(name="NUMBER", precision=20, scale=5)
TEXT = Type(name="VARCHAR2", length=200)
KINDS: dict[int, tuple[Type, bytes, tuple[Any, ...]]] = {
    columns.TEXT: (TEXT, b"\0\0\xff", ("a", "é" * 40, None, "a", "x" * 253)),
    columns.WIDE_TEXT: (
        Type(name="NVARCHAR2", length=200),
        b"\0\0\xff",
        ("a", "\U0001f600", None, "ñ", "ñ"),
    ),
    columns.BYTES: (Type(name="RAW", length=300), b"\0\0\xff", (b"\0", None, b"\xff" * 280)),
    columns.INT32: (Type(name="NUMBER", precision=9, scale=0), b"\x08\0\x03", (0, 7, -999_999_999)),
    columns.INT64: (Type(name="NUMBER", precision=18, scale=0), b"\x11\0\x03", (10**17, None, -1)),
    columns.DECIMAL: (NUMBER, b"\x13\x05\x03", (Decimal("0.00001"), Decimal("-12.5"), None)),
    columns.MOMENT: (
        Type(name="TIMESTAMP", scale=6),
        b"\0\x02\x02",
        (Moment(2024, 2, 29, nanos=1000), Moment(1, 1, 1), None),
    ),
    columns.FLOAT: (Type(name="BINARY_FLOAT"), b"\0\0\x01", (0.5, -1.5, None)),
    columns.DOUBLE: (Type(name="BINARY_DOUBLE"), b"\0\0\x01", (0.1, float("-inf"), None)),
}


def inputs() -> list[bytes]:
    """Return one input for each kind alone, and some of all kinds together."""
    found = []
    for kinds in ([kind] for kind in KINDS):
        found += [one(kinds, sdu) for sdu in (48, 8192)]
    return [*found, one(list(KINDS), 64), one(list(KINDS), 8192), one([*KINDS, *KINDS], 200)]


def one(kinds: list[int], sdu: int) -> bytes:
    """Return an input with the columns given."""
    types = [KINDS[kind][0] for kind in kinds]
    rows = [tuple(KINDS[k][2][at % len(KINDS[k][2])] for k in kinds) for at in (0, 1, 1, 2, 2, 0)]
    described = b"".join(bytes([kind]) + KINDS[kind][1] for kind in kinds)
    wire = next(responses(types, rows, [40], sdu))
    return bytes([len(kinds) - 1]) + described + bytes([40, 6]) + wire


def main() -> None:
    """Write the inputs."""
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    for number, each in enumerate(inputs()):
        (directory / f"fetch-{number:02}").write_bytes(each)


if __name__ == "__main__":
    main()
