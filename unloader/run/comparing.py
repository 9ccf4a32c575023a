"""The values that a run has fetched, held against the checksums of its source."""

from __future__ import annotations

from collections.abc import Sequence

from partition_planner.model import WorkUnit
from unloader.errors import VerifyMismatch
from unloader.events import Notice
from unloader.manifest.build import FinishedUnit
from unloader.verification.files import some_of
from unloader.verification.source_values import (
    Asking,
    SourcePart,
    source_differences,
    unhashed,
)


def compare(
    finished: Sequence[FinishedUnit], units: Sequence[WorkUnit], asking: Asking
) -> tuple[str, ...]:
    """Compare the checksums of finished units with those that the source computes.

    Returns:
        The columns that the source cannot hash, each with why.

    Raises:
        VerifyMismatch: The source has other values.
        SourceError: The source refused, or the snapshot is gone.
    """
    left_out = unhashed(asking)
    if left_out:
        known = "; ".join(left_out)
        text = f"columns whose values are not compared with the source: {known}"
        asking.observe(Notice(text=text))
    selectors = {unit.id: unit.selectors for unit in units}
    parts = [
        SourcePart(
            label=f"unit {unit.result.unit}",
            selectors=selectors[unit.result.unit],
            fetched=unit.result.content,
        )
        for unit in finished
        if unit.result.content is not None
    ]
    found = source_differences(parts, asking)
    if found:
        raise VerifyMismatch(
            some_of(found),
            "run again; if it happens again, check whether the condition or query returns "
            "different rows each time; if not, report it with the plan",
        )
    return left_out
