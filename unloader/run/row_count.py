"""The rows of a run as its source counts them; on masked columns no error shows a value of them."""

from __future__ import annotations

from unloader.resolve.resolved import ResolvedRun
from unloader.sources.base import Catalog
from unloader.sources.sampling import count
from unloader.worker.masked_failures import masks_any, source_words_left_out


def source_rows(catalog: Catalog, run: ResolvedRun) -> int:
    """Return how many rows a run reads, counted by the database.

    Raises:
        SourceError: The database refused or the snapshot is gone.
    """
    masked = masks_any(output.task_transform for output in run.outputs)
    with source_words_left_out(masked, run.extract.projection.columns):
        return count(catalog, run.extract, run.plan)
