"""Rows of an open query as the wire carries them: row header, row messages, bit vectors.

A column equal to the row before it is not sent but named in a bit vector, by the rules that real
servers (10g, 19c, 23ai) were seen to follow:

- The first two rows of a result set are complete. From the third on a vector (message 15 hex) stands
  before every row, even if every column is sent.
- In a later reply the vector of the first row is in the row header; the row before it is the last
  one of the reply before.
- A reply that had vectors but no repeated value has flag 0x20 in its OER, and no later reply of the
  cursor has vectors.
- NULL after NULL is a repeated value. A query with a LONG has no vectors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from oracle_server.model import Column
from oracle_server.wire.rows import cells
from oracle_server.wire.rows.encoded_rows import Batch, EncodedRows, EncodedTable
from oracle_server.wire.rows.lobs import Locators
from oracle_server.wire.values.by_type import Encoder
from oracle_server.wire.values.forms import NULL, ub

__all__ = ["EncodedRows", "EncodedTable", "RowCursor", "RowSet"]

_HEADER = b"\x06"
_FIRST_REPLY = 0x22
_LATER_REPLY = 0x02
_NOTHING_REPEATED = 0x20
_COMPLETE_ROWS = 2
"""Rows at the start of a result set that never have a vector."""


class RowSet:
    """A RowSource made of Python values, which are encoded when they are asked for."""

    can_compress = True

    def __init__(self, columns: Iterable[Column], values: Iterable[Sequence[Any]]) -> None:
        """Take the columns and an iterable of rows, which is read once and no faster than sent."""
        self.columns = tuple(columns)
        self._rows = iter(values)
        self._always = cells.always_sent(self.columns)
        self._before: Sequence[bytes] = ()

    def batch(self, limit: int, position: int, compress: bool, encoders: list[Encoder]) -> Batch:
        """Return the next rows of a reply.

        Args:
            limit: Rows at most.
            position: Rows that earlier replies had.
            compress: Vectors are on.
            encoders: Of the columns, for what the client defined.
        """
        parts: list[bytes] = []
        count, vector, width = 0, b"", len(self.columns)
        repeats = False
        for row in islice(self._rows, limit):
            ours = [encode(value) for encode, value in zip(encoders, row, strict=True)]
            if not compress or position + count < _COMPLETE_ROWS:
                parts += (cells.ROW, *ours)
            else:
                changed = cells.changes(ours, self._before, self._always)
                if count:
                    parts.append(cells.vector_message(changed))
                else:
                    vector, width = cells.bits(changed), sum(changed)
                    parts.append(cells.ROW)
                parts.append(cells.sent(ours, changed))
                repeats = repeats or not all(changed)
            self._before = ours
            count += 1
        compressed = compress and count > 0 and position + count > _COMPLETE_ROWS
        return Batch(count, b"".join(parts), vector, width, compressed, repeats)


class RowCursor:
    """One open cursor's position in its rows, and the state of its compression.

    A reply is `cursor.take(...)`, then [parameters], then an OER whose row counts are `rows_so_far`,
    whose flags byte is `oer_flags`, and whose number is 1403 if `done`.
    """

    def __init__(self, source: RowSet | EncodedRows, *, vectors: bool = True) -> None:
        """Start before the first row.

        Args:
            source: The rows.
            vectors: Leave out repeated values, for clients that know bit vectors; else every row is
                complete.
        """
        self.columns: tuple[Column, ...] = source.columns
        self.last_count = 0
        """Rows in the last reply."""
        self.rows_so_far = 0
        """Rows in all replies, the last one included: what an OER reports as row and rows."""
        self.done = False
        """The last reply had fewer rows than were asked for: its OER is 1403.

        Exactly as many rows as asked leave it False, as real servers do: the next fetch has none.
        """
        self.oer_flags = 0
        """Flags byte of the reply's OER."""
        self._source = source
        self._compress = vectors and source.can_compress
        self._encoders: list[Encoder] = []
        self._encoders_for: object = None
        self._replied = False

    def take(
        self,
        n: int,
        locators: Locators,
        *,
        defines: Sequence[int] | None = None,
        prefetches: Sequence[int] = (),
        asked: int | None = None,
        first_reply: bool | None = None,
    ) -> bytes:
        """Return one reply's ROW HEADER (06) and the messages (15, 07) of up to `n` rows.

        The header is there even when no row is left. `done` says whether `n` rows were there.

        Args:
            n: Rows to send at most (fewer than asked for to stop at a fault, say).
            locators: Of the connection; LOB values of these rows get their locators there.
            defines: Oracle type number of each column's define (8 LONG, 24 LONG RAW, 112, 113, ...)
                as the client's last execute with defines had them; None: as described.
            prefetches: How much of each column's LOBs comes with their locators; empty: nothing.
            asked: Rows the client asked for, which the header repeats; None: n.
            first_reply: The header's flags are those of the first reply with rows; None: of this
                cursor's first.

        Raises:
            OracleError: ORA-00932, a LOB's define is neither a LOB nor a LONG.
        """
        self._prepare(defines, prefetches, locators)
        batch = self._source.batch(n, self.rows_so_far, self._compress, self._encoders)
        first = not self._replied if first_reply is None else first_reply
        self._replied = True
        self.last_count = batch.rows
        self.rows_so_far += batch.rows
        self.done = batch.rows < n
        switched_off = batch.compressed and not batch.repeats
        self.oer_flags = _NOTHING_REPEATED if switched_off else 0
        self._compress = self._compress and not switched_off
        return _header(batch, first, n if asked is None else asked) + batch.body

    def _prepare(
        self, defines: Sequence[int] | None, prefetches: Sequence[int], locators: Locators
    ) -> None:
        """Make the columns' encoders, again only if the defines are others."""
        wanted = (None if defines is None else tuple(defines), tuple(prefetches), id(locators))
        if wanted == self._encoders_for:
            return
        if isinstance(self._source, RowSet):
            self._encoders = cells.make_encoders(self.columns, defines, locators, prefetches)
        self._encoders_for = wanted
        self._compress = self._compress and not cells.has_long(self.columns, defines)


def _header(batch: Batch, first: bool, asked: int) -> bytes:
    vector = ub(len(batch.vector)) + bytes((len(batch.vector),)) + batch.vector
    return b"".join(
        (
            _HEADER,
            bytes((_FIRST_REPLY if first else _LATER_REPLY,)),
            ub(batch.sent),
            NULL,
            ub(asked),
            NULL,
            vector if batch.vector else NULL,
            NULL,
        )
    )
