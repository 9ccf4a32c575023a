"""The types that travel: what a source describes, what the planner decides, what a worker reads.

All are frozen, picklable and JSON-able. The table's types live in `partition_planner.table`, the
units' in `partition_planner.work`; this module has the plan and is where everybody imports all of
them from.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from msgspec import Struct

from partition_planner.balance import finish_times, lower_bound
from partition_planner.costs import CostUnit, unit_costs
from partition_planner.errors import PlanError
from partition_planner.json_fields import Fields, broken
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
    selector_from_json,
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
    "selector_from_json",
]

SPLITS = ("auto", "partition", "range", "none")
FORMAT_VERSION = 3


class PlanLimits(Struct, frozen=True, kw_only=True):
    """What the user decides about a plan."""

    parallelism: int
    split: str = "auto"
    """auto: partitions, the largest cut if it pays; partition; range; none: one unit."""
    unit_bytes: int | None = None
    """Size above which a part is cut; None leaves it to the planner."""

    def check(self) -> None:
        """Raise PlanError if a limit makes no sense."""
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

    def to_json(self) -> dict[str, object]:
        """Return the limits as JSON-able values."""
        return {
            "parallelism": self.parallelism,
            "split": self.split,
            "unit_bytes": self.unit_bytes,
        }

    @classmethod
    def from_json(cls, value: object, where: str = "limits") -> PlanLimits:
        """Return the limits that `to_json` wrote; raise PlanError naming what is wrong."""
        fields = Fields(value, where, ("parallelism", "split", "unit_bytes"))
        return cls(
            parallelism=fields.integer("parallelism"),
            split=fields.text("split"),
            unit_bytes=fields.optional_integer("unit_bytes"),
        )


class SampledUnits(Struct, frozen=True, kw_only=True):
    """A plan has some of the units that the whole would be cut into."""

    share: float
    """What was asked for, above 0 and below 1."""
    of_units: int
    """How many units the whole has."""
    cost_share: float
    """What the units of the plan come to, if the estimates hold, 0 to 1."""

    def to_json(self) -> dict[str, object]:
        """Return the sample as JSON-able values."""
        return {"share": self.share, "of_units": self.of_units, "cost_share": self.cost_share}

    @classmethod
    def from_json(cls, value: object, where: str = "sampled") -> SampledUnits:
        """Return the sample that `to_json` wrote; raise PlanError naming what is wrong."""
        fields = Fields(value, where, ("share", "of_units", "cost_share"))
        return cls(
            share=fields.number("share"),
            of_units=fields.integer("of_units"),
            cost_share=fields.number("cost_share"),
        )


class PlanPart(Struct, frozen=True, kw_only=True):
    """A plan has the units that one of several machines reads; see `partition_planner.division`."""

    number: int
    """From 1."""
    of: int
    """How many parts there are."""
    of_units: int
    """How many units the whole has."""
    whole: str
    """The digest of the plan of the whole."""

    def to_json(self) -> dict[str, object]:
        """Return the part as JSON-able values."""
        return {
            "number": self.number,
            "of": self.of,
            "of_units": self.of_units,
            "whole": self.whole,
        }

    @classmethod
    def from_json(cls, value: object, where: str = "part") -> PlanPart:
        """Return the part that `to_json` wrote; raise PlanError naming what is wrong."""
        fields = Fields(value, where, ("number", "of", "of_units", "whole"))
        return cls(
            number=fields.integer("number"),
            of=fields.integer("of"),
            of_units=fields.integer("of_units"),
            whole=fields.text("whole"),
        )


class Plan(Struct, frozen=True, kw_only=True):
    """A table, or some of its partitions, cut into work units.

    Every row asked for belongs to exactly one of the units, and no other row to any. Of partitions
    this is checked whenever a plan is made: they read each one asked for, and no other. A sample or
    a part reads no other, either, and each row once at most.
    """

    table: TableInfo
    partitions: tuple[str, ...] | None
    """The partitions asked for, in table order; None is the table."""
    units: tuple[WorkUnit, ...]
    """Largest first, equals by id: the order in which seats take them."""
    limits: PlanLimits
    sampled: SampledUnits | None = None
    """The units are some of those that read everything asked for; None is all of them."""
    part: PlanPart | None = None
    """The units are those of one machine; None is all of them."""
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
        """Return the plan of these units, in whatever order, with all that follows from them.

        Raises:
            PlanError: The units read other partitions than those asked for.
        """
        has_all = sampled is None and part is None
        _check_partitions(table, partitions, units, has_all=has_all)
        costs, by_unit = unit_costs(table, units)
        order = sorted(range(len(units)), key=lambda at: (-by_unit[at], units[at].id))
        units = tuple(units[at] for at in order)
        each = [by_unit[at] for at in order]
        finish = costs.reported(max(finish_times(each, limits.parallelism)), len(units))
        bound = costs.reported(lower_bound(each, limits.parallelism), len(units))
        return cls(
            table=table,
            partitions=partitions,
            units=units,
            limits=limits,
            sampled=sampled,
            part=part,
            digest=_digest(table, partitions, units, limits, sampled, part),
            makespan=finish,
            # Rounded apart, the two may cross by the last bit.
            lower_bound=min(bound, finish),
            cost_unit=costs.unit,
        )

    @property
    def has_all_units(self) -> bool:
        """Whether the units read everything asked for; else they alone say which rows they are."""
        return self.sampled is None and self.part is None

    @property
    def selectors(self) -> tuple[Selector, ...]:
        """What the units read, in their order."""
        return tuple(selector for unit in self.units for selector in unit.selectors)

    def to_json(self) -> dict[str, object]:
        """Return the plan as JSON-able values."""
        return {
            "format_version": FORMAT_VERSION,
            "table": self.table.to_json(),
            "partitions": None if self.partitions is None else list(self.partitions),
            "units": [unit.to_json() for unit in self.units],
            "limits": self.limits.to_json(),
            **({} if self.sampled is None else {"sampled": self.sampled.to_json()}),
            **({} if self.part is None else {"part": self.part.to_json()}),
            "digest": self.digest,
            "makespan": self.makespan,
            "lower_bound": self.lower_bound,
            "cost_unit": self.cost_unit,
        }

    @classmethod
    def from_json(cls, value: object) -> Plan:
        """Return the plan that `to_json` wrote.

        Raises:
            PlanError: The plan is of another format version, incomplete, has a key or a value that
                does not belong there, or was changed after it was made. The message names the
                place.
        """
        version = value.get("format_version", FORMAT_VERSION) if isinstance(value, dict) else None
        if isinstance(value, dict) and version != FORMAT_VERSION:
            older = isinstance(version, int) and version < FORMAT_VERSION
            raise broken(
                f"it was made by {'an older' if older else 'another'} version: its format is "
                f"{version!r}, but this version reads {FORMAT_VERSION}"
            )
        derived = ("digest", "makespan", "lower_bound", "cost_unit")
        given = ["format_version", "table", "partitions", "units", "limits"]
        if isinstance(value, dict):
            given += [key for key in ("sampled", "part") if key in value]
        fields = Fields(value, "plan", (*given, *derived))
        units = tuple(
            WorkUnit.from_json(unit, f"units[{at}]")
            for at, unit in enumerate(fields.items("units"))
        )
        limits = PlanLimits.from_json(fields.raw("limits"))
        limits.check()
        if not units:
            raise broken("it has no units")
        plan = cls.of(
            table=TableInfo.from_json(fields.raw("table")),
            partitions=None if fields.raw("partitions") is None else fields.texts("partitions"),
            units=units,
            limits=limits,
            sampled=SampledUnits.from_json(fields.raw("sampled")) if "sampled" in given else None,
            part=PlanPart.from_json(fields.raw("part")) if "part" in given else None,
        )
        if plan.units != units:
            raise broken("it was edited after it was made: its units are not largest first")
        if plan.digest != fields.text("digest"):
            raise broken(
                "it was edited after it was made: its table, partitions, units and limits have "
                f"the digest {plan.digest}, but it records {fields.text('digest')}"
            )
        for name in ("makespan", "lower_bound", "cost_unit"):
            said = fields.text(name) if name == "cost_unit" else fields.number(name)
            if said != getattr(plan, name):
                raise broken(
                    f"it was edited after it was made: its units have the {name} "
                    f"{getattr(plan, name)}, but it records {said}"
                )
        return plan


def _check_partitions(
    table: TableInfo,
    partitions: tuple[str, ...] | None,
    units: Sequence[WorkUnit],
    *,
    has_all: bool,
) -> None:
    """Check that the units read the partitions asked for: each of them, and nothing else.

    Those of a sample or a part need not read each.
    """
    read = {selector.partition for unit in units for selector in unit.selectors}
    asked: set[str | None] = {part.name for part in table.partitions}
    if partitions is not None:
        asked = set(partitions)
    elif read == {None}:
        return
    if read == asked or (not has_all and read <= asked):
        return
    left_out = sorted(name for name in asked - read if name is not None)
    unasked = sorted("the whole table" if name is None else name for name in read - asked)
    problem = (
        f"leave out {left_out[0]}" if left_out else f"read {unasked[0]}, which was not requested"
    )
    raise PlanError(
        f"The work units of {table.label} {problem}.",
        "make a new plan; if that does not help, report it.",
    )


def _digest(
    table: TableInfo,
    partitions: tuple[str, ...] | None,
    units: Sequence[WorkUnit],
    limits: PlanLimits,
    sampled: SampledUnits | None,
    part: PlanPart | None,
) -> str:
    encode = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
    head = (
        f'{{"limits":{encode(limits.to_json())},"partitions":{encode(partitions)},'
        f'"table":{encode(table.to_json())},"units":['
    )
    digest = hashlib.sha256(head.encode("ascii"))
    # Unit by unit: the text of all at once would be the largest thing a plan ever needs.
    for at, unit in enumerate(units):
        digest.update((("," if at else "") + encode(unit.to_json())).encode("ascii"))
    tail = "" if sampled is None else f',"sampled":{encode(sampled.to_json())}'
    tail += "" if part is None else f',"part":{encode(part.to_json())}'
    digest.update(f"]{tail}}}".encode("ascii"))
    return digest.hexdigest()
