"""Tables and LOBs of any size for the Oracle test server, which holds next to nothing of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from oracle_server.data.tables import Table
from oracle_server.database import Database
from oracle_server.model import Answer, Column, SessionState, Type
from oracle_server.samples.tables import reference_table
from oracle_server.wire.row_replies import EncodedRows, RowSet

TABLE = "HASH_PART_0160"
_PERIOD = 1_000_003
"""A prime: pieces of the size that a reader asks for begin with different content."""


@cache
def _period_text() -> str:
    return "".join(f"{n:06d} {n * n:x}\n"[: 7 + n % 9] for n in range(200_000))[:_PERIOD]


@cache
def _period_data() -> bytes:
    return bytes((n * n >> 3) & 0xFF for n in range(_PERIOD))


class RepeatedDatabase(Database):
    """A database with the reference table, whose rows come over and over as one query's result."""

    def __init__(self, rows: int) -> None:
        """Make the table.

        Args:
            rows: Rows that are there once.
        """
        super().__init__()
        self.rows = rows
        self.times = 1
        """How often a query finds each of them."""
        self.add_user("SCOTT", "tiger")
        self.privileges.grant("SCOTT", "V$DATABASE")
        reference_table(self, rows, 1)

    def execute(self, session: SessionState, sql: str, binds: Iterable[Any] = ()) -> Answer:
        """Run one statement; those that read or count the table find more of it."""
        answer = super().execute(session, sql, binds)
        found = answer.rows
        if TABLE in sql and isinstance(found, EncodedRows):
            answer.rows = found.table.rows([(0, self.rows)] * self.times)
        elif TABLE in sql and "COUNT(*)" in sql and found is not None:
            answer.rows = RowSet(found.columns, [(self.rows * self.times,)])
        return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodicLob:
    """A LOB whose content repeats itself after `_PERIOD` characters or bytes."""

    length: int
    binary: bool

    def read(self, offset: int, amount: int) -> str | bytes:
        """Return `amount` characters or bytes from `offset` on."""
        content: Any = _period_data() if self.binary else _period_text()
        amount = min(amount, self.length - offset)
        start = offset % _PERIOD
        part = content[start : start + amount]
        while len(part) < amount:
            part += content[: amount - len(part)]
        return part  # type: ignore[no-any-return]

    def pieces(self) -> Iterator[bytes]:
        """Yield the whole content as bytes, by periods rather than as a server reads it."""
        content = _period_data() if self.binary else _period_text().encode()
        whole, rest = divmod(self.length, _PERIOD)
        for _ in range(whole):
            yield content
        yield content[:rest]


def large_values(db: Database, name: str, size: int) -> Table:
    """Create (ID, C CLOB, B BLOB): a row with values of `size`, then one with short ones."""
    columns = (
        Column(name="ID", type=Type(name="NUMBER", precision=9, scale=0), nullable=False),
        Column(name="C", type=Type(name="CLOB")),
        Column(name="B", type=Type(name="BLOB")),
    )
    rows = [
        (1, PeriodicLob(length=size, binary=False), PeriodicLob(length=size, binary=True)),
        (2, "short", b"\x00\x01"),
    ]
    return db.create_table("SCOTT", name, columns=columns, rows=rows)
