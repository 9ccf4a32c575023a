"""The final name of every file of a run, from the user's template."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from partition_planner.model import WorkUnit
from unloader.request.file_names import NameValues, UnitNames, any_name
from unloader.resolve.resolved import ResolvedRun
from writers.registry import extension


class Naming(Struct, frozen=True, kw_only=True):
    """What all names of a run share."""

    template: str
    schema: str
    table: str
    ext: str
    date: str
    one: bool
    """One file or stream holds all work units."""
    numbered: bool
    """A unit may have several files, which are numbered from 1."""

    @classmethod
    def of(cls, run: ResolvedRun, template: str, *, one: bool) -> Naming:
        """Return the naming of a run."""
        extract, output = run.extract, run.output
        taken_at = extract.snapshot.taken_at if extract.snapshot else ""
        return cls(
            template=template,
            schema=extract.table.schema or "",
            table=extract.table.name,
            ext=extension(output.format, output.compression, output.spec("").encryption),
            date=taken_at[:10].replace("-", ""),
            one=one,
            numbered=bool(output.options.file_size_bytes),
        )

    def name(self, unit: WorkUnit, number: int = 0) -> str:
        """Return the name of a unit's file.

        Args:
            unit: The unit; any where one file holds them all.
            number: Of the file among the unit's, from 0.

        Raises:
            OutputFailed: The name is longer than file systems allow.
        """
        return self.of_unit(unit)(number)

    def of_unit(self, unit: WorkUnit) -> UnitNames:
        """Return the names of all files of a unit."""
        partition, name = ("", "") if self.one else (unit.partition or "", unit.id)
        return UnitNames(template=self.template, values=self._values(partition, name))

    def pattern(self) -> str:
        """Return what all names are like, with `*` for any text."""
        return any_name(self.template, self._values("", ""))

    def _values(self, partition: str, unit: str) -> NameValues:
        return NameValues(
            schema=self.schema,
            table=self.table,
            partition=partition,
            unit=unit,
            part=1 if self.numbered else None,
            ext=self.ext,
            date=self.date,
        )

    def first_names(self, units: Sequence[WorkUnit]) -> dict[str, str]:
        """Return the name of each unit's first file by unit; of one unit where one file holds all.

        Raises:
            OutputFailed: A name is longer than file systems allow.
        """
        return {unit.id: self.name(unit) for unit in (units[:1] if self.one else units)}
