"""The page of `unloader size`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from unloader.cli.display import render
from unloader.cli.display.columns import folded, terminal_width
from unloader.tuning.sizing_arithmetic import shown

if TYPE_CHECKING:
    from unloader.tuning.sizing_records import Needed, Sizing, Space, Step


def page(found: Sizing) -> str:
    """Return the answer, its basis, and the arithmetic line by line."""
    return "\n\n".join(part for part in _parts(found) if part)


def _parts(found: Sizing) -> Iterator[str]:
    yield "\n".join(folded(found.answer, terminal_width()))
    if found.needed is not None:
        yield render.facts(_needed(found.needed))
    yield render.table(
        ("format", "codec", ">space", ">MB/s", ">disks", ">cores to compress"),
        map(_space, found.space),
    )
    table = render.table(("step", ">value", "unit", "arithmetic"), map(_step, found.steps))
    yield f"{table}\n\nvalues are rounded to six digits, and the arithmetic uses the rounded values"
    yield render.facts(
        (
            *(("measured", each) for each in found.origins),
            *(("assumed", each) for each in found.assumptions),
            *((f"no {each.what}", each.reason) for each in found.unknown),
        )
    )


def _needed(needed: Needed) -> Iterator[tuple[str, str]]:
    for name, value in (
        ("workers", needed.workers),
        ("cores", needed.cores),
        ("disks", needed.disks),
        ("network links", needed.network_links),
    ):
        if value is not None:
            yield name, render.count(value)
    if needed.network_gigabits_per_second is not None:
        rate = render.megabytes_per_second(needed.network_bytes_per_second)
        yield "network", f"{needed.network_gigabits_per_second:.3g} Gbit/s ({rate})"


def _space(space: Space) -> tuple[str, ...]:
    rate, extra = space.bytes_per_second, space.extra_cores
    return (
        space.format,
        space.codec,
        render.size(space.bytes),
        render.UNKNOWN if rate is None else f"{rate / 1e6:,.1f}",
        render.count(space.disks),
        render.UNKNOWN if extra is None else f"{extra:.2f}",
    )


def _step(step: Step) -> tuple[str, ...]:
    how = ", ".join(part for part in (step.formula, step.note) if part)
    return (step.what, shown(step.value), step.unit, how)
