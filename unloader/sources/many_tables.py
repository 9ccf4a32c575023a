"""Many tables of a source together; a refusal of one table does not affect the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from unloader.errors import SourceError
from unloader.events import Notice, Observer, silent
from unloader.selection.listing import Obstacle, TableProblem, problem_of
from unloader.sources.base import Catalog, Held, described_or_obstacle

if TYPE_CHECKING:
    from partition_planner.model import TableInfo
    from unloader.selection.choice import Chosen

GONE = Obstacle(
    kind="gone",
    what="it was dropped or renamed after the run began",
    hint="leave the table out, or run again to read the tables as they are now",
)


class DescribedTables(Struct, frozen=True, kw_only=True):
    """The descriptions of the chosen tables."""

    tables: tuple[TableInfo, ...]
    """By schema and name, each once."""
    problems: tuple[TableProblem, ...] = ()
    """One for each table that cannot be described, without the problems of the choice."""
    notices: tuple[str, ...] = ()


def describe_tables(
    catalog: Catalog, chosen: Chosen, observe: Observer = silent
) -> DescribedTables:
    """Describe the chosen tables that have no obstacle yet.

    The source resolves a name that is not in the listing. If the name means a table that is chosen
    or excluded already, it adds no table.

    Raises:
        TransientSourceError: The connection is lost.
        SnapshotGone: The snapshot is lost.
        SourceError: The database refused all of it.
    """
    problems: list[TableProblem] = []
    notices: list[str] = []
    found: dict[tuple[str, str], TableInfo] = {}
    wanted = [table for table in chosen.tables if table.readable]
    infos = catalog.describe_tables(wanted, observe) if wanted else ()
    for listed, info in zip(wanted, infos, strict=True):
        if isinstance(info, Obstacle):
            problems.append(problem_of(listed.label, info))
        else:
            found[listed.key] = info
    for named in chosen.unlisted:
        single = described_or_obstacle(catalog, named.name, observe)
        if isinstance(single, Obstacle):
            problems.append(problem_of(named.text, single))
            continue
        key = (single.schema or "", single.name)
        if key in chosen.excluded:
            notices.append(f"{named.text} means {single.label}, which is excluded")
        else:
            found.setdefault(key, single)
    return DescribedTables(
        tables=tuple(info for _, info in sorted(found.items())),
        problems=tuple(problems),
        notices=tuple(notices),
    )


def hold_tables(
    catalog: Catalog, tables: Sequence[Held], observe: Observer = silent
) -> tuple[SourceError | None, ...]:
    """Hold each table unchanged, and observe a notice for each kind of object that is not held.

    Returns:
        The error of each table, or None.

    Raises:
        SourceError: The connection is lost, or the snapshot of all.
    """
    found = catalog.hold_tables(tables)
    for text in catalog.unheld():
        observe(Notice(text=text))
    return found
