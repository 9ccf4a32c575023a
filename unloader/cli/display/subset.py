"""What part of a table's rows a run reads, in a few words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unloader.cli.display import render
from unloader.nouns import counted
from unloader.request.settings import percent_text

if TYPE_CHECKING:
    from unloader.resolve.resolved import ResolvedRun


def subset_text(run: ResolvedRun) -> str:
    """Return what part of the rows is read by `--sample`, `--part` and so on; empty for all."""
    keys, sampled, most = run.extract.keys, run.plan.sampled, run.extract.limit_rows
    parts, one = [], run.plan.part
    if one is not None:
        of = f"{render.count(len(run.plan.units))} of {counted(one.of_units, 'unit')}"
        parts.append(f"part {one.number} of {one.of}, {of}")
    if keys is not None:
        parts.append(f"{percent_text(keys.share)} by {render.name(keys.column)}")
    elif sampled is not None:
        of = f"{render.count(len(run.plan.units))} of {counted(sampled.of_units, 'unit')}"
        parts.append(f"{of}, {percent_text(round(sampled.cost_share, 6))}")
    if most is not None:
        parts.append(f"first {counted(most, 'row')}")
    return ", ".join(parts)
