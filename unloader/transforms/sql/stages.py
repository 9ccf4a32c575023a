"""Steps of SQL: those that follow one another go to DuckDB together where they can."""

from __future__ import annotations

from typing import Any

from unloader.transforms.model import ComputeColumn, FilterRows, Masked
from unloader.transforms.sql.expressions import Expression, checked
from unloader.transforms.sql.running import Computed, Evaluation, check_condition, typed
from unloader.transforms.sql.session import open_session
from unloader.transforms.steps import (
    Arrays,
    Column,
    Columns,
    names_of,
    schema_of,
    target,
    with_column,
)


class SqlStage:
    """Expressions over the same columns, and perhaps a condition on the rows, computed at once."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._computed: list[Computed] = []
        self._targets: list[int] = []
        self._condition: Expression | None = None
        self._evaluation: Evaluation | None = None

    def takes(self, expression: Expression) -> bool:
        """Whether an expression needs nothing that this stage makes or leaves out."""
        return self._condition is None and not set(expression.columns) & set(self._targets)

    def compute(self, computed: Computed, index: int) -> None:
        """Set a column; a later one sets it again if there are two of them."""
        self._computed.append(computed)
        self._targets.append(index)

    def filter(self, condition: Expression) -> None:
        """Keep some rows, after everything else."""
        self._condition = condition

    def run(self, arrays: Arrays, rows: int) -> tuple[Arrays, int]:
        """Return the columns, and how many rows are left.

        Raises:
            OutputFailed: An expression fails on a row.
        """
        if self._evaluation is None:
            self._evaluation = Evaluation(self._connection, self._computed, self._condition)
        results, kept = self._evaluation.results(arrays, rows)
        arrays = list(arrays)
        for index, array in zip(self._targets, results, strict=True):
            arrays[index : index + 1] = [array]
        if kept is None:
            return arrays, rows
        left = kept.true_count
        return (arrays, rows) if left == rows else ([each.filter(kept) for each in arrays], left)


class SqlSteps:
    """The steps of SQL of one transform, and the session that they share."""

    def __init__(self) -> None:
        """Open the session.

        Raises:
            ConfigError: DuckDB is missing.
        """
        self._connection = open_session()
        self.inputs: set[str] = set()
        """The input columns that expressions look at."""

    def add(self, step: ComputeColumn | FilterRows, columns: Columns, stages: list[Any]) -> Columns:
        """Return the columns after a step, which is put behind the stages, or into the last.

        Raises:
            UsageError: The step cannot be done.
        """
        if isinstance(step, FilterRows):
            condition = self._expression(step.filter, columns, "the filter")
            check_condition(self._connection, condition, schema_of(columns))
            self._stage(condition, stages).filter(condition)
            return columns
        index, name = target(columns, step.compute, "compute")
        expression = self._expression(step.sql, columns, f"the SQL of column {name}")
        computed = typed(self._connection, expression, schema_of(columns), name)
        self._stage(expression, stages).compute(computed, index)
        return with_column(columns, index, _column(computed, columns))

    def close(self) -> None:
        """End the session."""
        self._connection.close()

    def _expression(self, sql: str, columns: Columns, what: str) -> Expression:
        expression = checked(self._connection, sql, names_of(columns), what)
        for index in expression.columns:
            self.inputs.update(columns[index].inputs)
        return expression

    def _stage(self, expression: Expression, stages: list[Any]) -> SqlStage:
        last = stages[-1] if stages else None
        if isinstance(last, SqlStage) and last.takes(expression):
            return last
        stage = SqlStage(self._connection)
        stages.append(stage)
        return stage


def _column(computed: Computed, columns: Columns) -> Column:
    """Return what is known of a computed column by those that it is computed from."""
    used = [columns[index] for index in computed.columns]
    inputs = dict.fromkeys(name for column in used for name in column.inputs)
    masked = [column.masked for column in used if column.masked is not None]
    return Column(
        field=computed.field,
        inputs=tuple(inputs),
        clear=frozenset().union(*(column.clear for column in used)),
        changes=("computed",),
        masked=Masked(method="derived", key_name=masked[0].key_name) if masked else None,
    )
