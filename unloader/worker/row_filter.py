"""The condition that an output sets on the rows that are read: evaluated batch by batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from unloader.errors import OutputFailed
from unloader.transforms.sql_expressions import checked, open_session
from unloader.transforms.sql_steps import Evaluation
from writers.schema import selected

if TYPE_CHECKING:
    from writers.large_rows import LargeRow

WHAT = "the filter"

_MOST_KEPT = 4
"""Filters without work. A session of DuckDB takes a few MB while it does nothing."""

_kept: dict[tuple[str, bytes, tuple[int, ...]], RowFilter] = {}
"""The last one that was used stands at the end."""


def row_filter(condition: str, schema: Any, columns: Sequence[int]) -> RowFilter:
    """Return a filter that a unit before has left, or a new one; see `RowFilter`.

    To check a condition and to open a session takes longer than the rows of a small unit.
    """
    key = (condition, selected(schema, columns).serialize().to_pybytes(), tuple(columns))
    return _kept.pop(key, None) or RowFilter(condition, schema, columns)


class RowFilter:
    """One condition; used by one thread."""

    def __init__(self, condition: str, schema: Any, columns: Sequence[int]) -> None:
        """Get ready.

        Args:
            condition: In DuckDB's SQL; it was checked before the run.
            schema: Of the scan.
            columns: Those that the condition looks at, by their places there.
        """
        self._columns = tuple(columns)
        looked_at = selected(schema, self._columns)
        self._kept_as = (condition, looked_at.serialize().to_pybytes(), self._columns)
        self._session = open_session()
        names = looked_at.names
        expression = checked(self._session, condition, names, WHAT)
        self._evaluation = Evaluation(self._session, (), expression, WHAT)

    def kept(self, batches: Sequence[Any]) -> list[Any]:
        """Return which rows of each of some batches are kept; None is all of one.

        They are evaluated together: that costs 1.3 ms of CPU however few the rows are.

        Raises:
            OutputFailed: The condition fails on a row.
        """
        return self._evaluation.kept(batches, self._columns)

    def keeps(self, large: LargeRow) -> bool:
        """Return whether a row with values too large for memory is kept.

        Raises:
            OutputFailed: The condition would have to look at such a value.
        """
        for index, _ in large.values:
            if index in self._columns:
                name = large.row.schema.field(index).name
                raise OutputFailed(
                    f"column {name} has a value that is too large for memory, but {WHAT} reads "
                    "this column",
                    "use --where, which the database evaluates",
                )
        return self.kept([large.row]) == [None]

    def keep(self) -> None:
        """Leave it to the units that come; all its rows were taken."""
        for old in list(_kept)[: max(0, len(_kept) - _MOST_KEPT + 1)]:
            _kept.pop(old).close()
        if self._kept_as in _kept:
            self.close()
        else:
            _kept[self._kept_as] = self

    def close(self) -> None:
        """End the session."""
        self._session.close()
