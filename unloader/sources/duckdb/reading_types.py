"""The Arrow types of readings: DuckDB says them of a query without rows, of many tables at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from partition_planner.model import TableInfo
from unloader.errors import SourceError
from unloader.sources.duckdb import types as duckdb_types
from unloader.sources.duckdb.file import relation
from unloader.sources.readings import ColumnReadings
from unloader.sources.statement import qualified, select

if TYPE_CHECKING:
    import pyarrow as pa

_TOGETHER = 32
"""Tables of one query. Of more the query's own plan costs what the round trips would."""

_Columns = tuple[ColumnReadings, ...]


class ReadingTypes:
    """Types by table, asked for when the first of a few tables is needed."""

    def __init__(self, connection: Any) -> None:
        """Take the connection that is asked."""
        self._connection = connection
        self._expected: dict[str, _Columns] = {}
        """By what they are read from: tables that are probably asked for, in that order."""
        self._known: dict[str, Sequence[pa.DataType]] = {}

    def expect(self, tables: Iterable[TableInfo]) -> None:
        """Note tables whose types will be asked for one after the other."""
        for table in tables:
            columns = tuple(duckdb_types.readings_of(column) for column in table.columns)
            self._expected[qualified(table.schema, table.name)] = columns

    def typed(self, read_from: str, columns: _Columns) -> _Columns:
        """Return the readings of columns with their types.

        Args:
            read_from: A table's name in SQL, or a query in parentheses.
            columns: All that is read from it.

        Raises:
            SourceError: DuckDB cannot read them.
        """
        if self._expected.get(read_from) == columns:
            self._ask_many(read_from)
        found = self._known.pop(read_from, None)
        if found is None:
            found = self._types(_nothing_of(read_from, columns))
        return duckdb_types.with_types(columns, found)

    def _ask_many(self, first: str) -> None:
        """Ask for the types of a table and of a few others in one query."""
        others = islice((name for name in self._expected if name != first), _TOGETHER - 1)
        names = [first, *others]
        some = {name: self._expected.pop(name) for name in names}
        parts = [f"({_nothing_of(name, columns)})" for name, columns in some.items()]
        try:
            types = iter(self._types(f"SELECT * FROM {', '.join(parts)}"))
        except SourceError:
            return  # Each is asked for by itself then, and has its own error.
        for name, columns in some.items():
            self._known[name] = [next(types) for column in columns for _ in column.readings]

    def _types(self, sql: str) -> Sequence[pa.DataType]:
        types: Sequence[pa.DataType] = (
            relation(self._connection, sql).to_arrow_reader(1).schema.types
        )
        return types


def _nothing_of(read_from: str, columns: _Columns) -> str:
    items = ", ".join(each.expression for column in columns for each in column.readings)
    return select(items, read_from, ["false"])
