"""The projection of a table for a single output, as a run with that output makes it."""

from __future__ import annotations

from dataclasses import dataclass, field

from partition_planner.model import TableInfo
from unloader.model import Projection, ValueOptions
from unloader.sources.base import Catalog
from unloader.sources.oracle.columns.types import readings_of
from unloader.sources.projection import OutputNeeds, choose, project
from writers.model import TextFormat


@dataclass(frozen=True, kw_only=True)
class OneOutput:
    """An output, and what the user says of columns and values."""

    text: TextFormat | None
    """None is Parquet."""
    as_text: tuple[str, ...] = ()
    batches_only: bool = False
    values: ValueOptions = field(default_factory=ValueOptions)

    @property
    def needs(self) -> OutputNeeds:
        """What the output needs of the columns."""
        return OutputNeeds(text=self.text, batches_only=self.batches_only)

    def project(self, catalog: Catalog, table: TableInfo, query: str | None) -> Projection:
        """Return the projection that a source's catalog leads to."""
        return project(
            catalog, table, query, (self.needs,), as_text=self.as_text, values=self.values
        )


def oracle_projection(table: TableInfo, output: OneOutput) -> Projection:
    """Return the projection of an Oracle table, without a database."""
    readings = tuple(
        each for column in table.columns for each in readings_of(column, output.values)
    )
    return choose(readings, (output.needs,), as_text=output.as_text)
