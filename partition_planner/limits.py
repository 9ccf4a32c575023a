"""What the user decides about a plan; light, for it is read before there is any table."""

from __future__ import annotations

from dataclasses import dataclass

from partition_planner.errors import PlanError
from partition_planner.json_fields import Fields

SPLITS = ("auto", "partition", "range", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLimits:
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
                f"Parallelism {self.parallelism} leaves nobody to do the work.",
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
