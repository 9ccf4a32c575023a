"""The types that travel: a source's description, the planner's decision, a worker's selectors.

All are frozen, picklable and JSON-able. The table's types live in `partition_planner.table`, the
units' in `partition_planner.work`; this module has the plan and is where everybody imports all of
them from.
"""

from __future__ import annotations

import hashlib

import msgspec
from msgspec import Struct

from partition_planner.balance import finish_times, lower_bound
from partition_planner.costs import CostUnit, unit_costs
from partition_planner.errors import PlanError
from partition_planner.table import (
    ColumnInfo,
    KeySample,
    PartitionInfo,
    PartitionKind,
    RowExtent,
    TableInfo,
    coalesced,
)
from partition_planner.work import (
    KeyRange,
    NamedPartition,
    Piece,
    RowRange,
    Selector,
    WholeTable,
    WorkUnit,
)

__all__ = [
    "SPLITS",
    "ColumnInfo",
    "CostUnit",
    "KeyRange",
    "KeySample",
    "NamedPartition",
    "PartitionInfo",
    "PartitionKind",
    "Piece",
    "Plan",
    "PlanLimits",
    "PlanPart",
    "RowExtent",
    "RowRange",
    "SampledUnits",
    "Selector",
    "TableInfo",
    "WholeTable",
    "WorkUnit",
    "coalesced",
]

SPLITS = ("auto", "partition", "range", "none")
FORMAT_VERSION = 5


class PlanLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    parallelism: int
    split: str = "auto"
    """auto: partitions, the largest cut if it pays; partition; range; none: one unit."""
    unit_bytes: int | None = None
    """Size above which a part is cut; None leaves it to the planner."""

    def check(self) -> None:
        if self.parallelism < 1:
            raise PlanError(
                f"Parallelism {self.parallelism} is below 1.",
                "give --parallelism 1 or more.",
            )
        if self.split not in SPLITS:
            raise PlanError(
                f"Unknown way to split {self.split!r}.", f"give --split {', '.join(SPLITS)}."
            )
        if self.unit_bytes is not None and self.unit_bytes < 1:
            raise PlanError(
                f"A work unit of {self.unit_bytes} bytes cannot be made.",
                "give --unit-bytes a size such as 256MiB, or leave it out.",
            )


class SampledUnits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A plan has some of the units that the whole would be cut into."""

    share: float
    """The requested share, above 0 and below 1."""
    of_units: int
    """How many units the whole has."""
    cost_share: float
    """The share of the plan's units, if the estimates hold, 0 to 1."""


class PlanPart(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A plan has the units that one of several machines reads; see `partition_planner.division`."""

    number: int
    """From 1."""
    of: int
    """How many parts there are."""
    of_units: int
    """How many units the whole has."""
    plan_digest: str
    """The digest of the plan of the whole."""


class Plan(
    Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="format_version",
    tag=FORMAT_VERSION,
):
    """A table, or some of its partitions, cut into work units.

    Every requested row belongs to exactly one of the units, and no further row to any. For
    partitions this is checked whenever a plan is made: they read each requested partition, and
    nothing else. A sample or a part reads only requested rows, too, and each row once at most.
    """

    table: TableInfo
    partitions: tuple[str, ...] | None
    """The partitions asked for, in table order; None is the table."""
    units: tuple[WorkUnit, ...]
    """Largest first, equals by id: the order in which seats take them."""
    limits: PlanLimits
    sampled: SampledUnits | None = None
    """The units are a selection of the units that read every requested row; None for all units."""
    part: PlanPart | None = None
    """The units belong to one machine; None for all units."""
    digest: str
    """SHA-256, in hex, of the canonical JSON of table, partitions, units and limits, and of the
    sample and the part if there is one."""
    makespan: float
    """Cost at which the last worker finishes, if the estimates hold, in `cost_unit`."""
    lower_bound: float
    """Cost below which no assignment of these units finishes, in `cost_unit`."""
    cost_unit: CostUnit
    """"units" where neither bytes nor rows are known: 1.0 is then a unit of average size."""

    @classmethod
    def of(
        cls,
        *,
        table: TableInfo,
        partitions: tuple[str, ...] | None,
        units: tuple[WorkUnit, ...],
        limits: PlanLimits,
        sampled: SampledUnits | None = None,
        part: PlanPart | None = None,
    ) -> Plan:
        """Return the plan of these units, in any order, with all values computed from them.

        Raises:
            PlanError: The units read other partitions than those asked for.
        """
        read = {selector.partition for unit in units for selector in unit.selectors}
        asked: set[str | None] = {leaf.name for leaf in table.partitions}
        if partitions is not None:
            asked = set(partitions)
        elif read == {None}:
            asked = read
        # The units of a sample or a part need not read each partition.
        left_out = sorted(name for name in asked - read if name is not None)
        unasked = sorted("the whole table" if name is None else name for name in read - asked)
        if unasked or (left_out and sampled is None and part is None):
            problem = f"leave out {left_out[0]}" if left_out else ""
            raise PlanError(
                f"The work units of {table.label} "
                f"{problem or f'read {unasked[0]}, which was not requested'}.",
                "make a new plan; if that does not help, report it.",
            )
        costs, by_unit = unit_costs(table, units)
        order = sorted(range(len(units)), key=lambda at: (-by_unit[at], units[at].id))
        units = tuple(units[at] for at in order)
        each = [by_unit[at] for at in order]
        finish = costs.reported(max(finish_times(each, limits.parallelism)), len(units))
        bound = costs.reported(lower_bound(each, limits.parallelism), len(units))
        encode = msgspec.json.Encoder(order="sorted").encode
        digest = hashlib.sha256(
            b'{"limits":%b,"partitions":%b,"table":%b,"units":['
            % (encode(limits), encode(partitions), encode(table))
        )
        # Unit by unit: the text of all together would be the largest object a plan ever needs.
        for at, unit in enumerate(units):
            digest.update((b"," if at else b"") + encode(unit))
        if sampled is not None:
            digest.update(b',"sampled":' + encode(sampled))
        if part is not None:
            digest.update(b',"part":' + encode(part))
        digest.update(b"]}")
        return cls(
            table=table,
            partitions=partitions,
            units=units,
            limits=limits,
            sampled=sampled,
            part=part,
            digest=digest.hexdigest(),
            makespan=finish,
            # Rounded apart, the two may cross by the last bit.
            lower_bound=min(bound, finish),
            cost_unit=costs.unit,
        )

    @property
    def has_all_units(self) -> bool:
        """Whether the units read every requested row; else they alone determine the rows."""
        return self.sampled is None and self.part is None

    @property
    def selectors(self) -> tuple[Selector, ...]:
        return tuple(selector for unit in self.units for selector in unit.selectors)

    def check(self) -> None:
        """Check a plan that was read: its values make sense and follow from its units and table.

        Raises:
            PlanError: It has no units, or was changed after it was made.
        """
        self.limits.check()
        if not self.units:
            raise _broken("it has no units")
        plan = Plan.of(
            table=self.table,
            partitions=self.partitions,
            units=self.units,
            limits=self.limits,
            sampled=self.sampled,
            part=self.part,
        )
        for name, what in _DERIVED.items():
            if getattr(plan, name) != getattr(self, name):
                raise _broken(f"it was edited after it was made: {what}")


_DERIVED = {
    "units": "its units are not largest first",
    "digest": "its digest is not the digest of its table, partitions, units and limits",
    "makespan": "its makespan is not the makespan of its units",
    "lower_bound": "its lower_bound is not the lower bound of its units",
    "cost_unit": "its cost_unit is not the measure of its units",
}
"""What follows from the rest of a plan, and the error if it does not."""


def _broken(what: str) -> PlanError:
    return PlanError(f"The plan cannot be used: {what}.", "make the plan again from the source.")
