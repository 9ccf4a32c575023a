"""What a manifest recorded of the values that were fetched, as files are compared with it."""

from __future__ import annotations

from unloader.errors import UsageError
from unloader.manifest.asked import ColumnRecord
from unloader.manifest.model import Manifest
from unloader.model import FinishedUnit
from unloader.sources.readings import Reading, recorded_type, schema_message
from unloader.verification.content import Fetched, fetched_of
from writers.content.sums import total

TABLE = "the table"
"""The part where one file holds all units."""


NEW_RUN = "unload again with --verify full, which records checksums of the values for --level full"


def has_sums(manifest: Manifest) -> bool:
    """Return whether a run recorded checksums of all its values."""
    return all(unit.content for unit in manifest.units)


def fetched_by(manifest: Manifest) -> Fetched:
    """Return what the values in a finished run's files are compared with.

    Raises:
        UsageError: The run recorded no checksums of values.
    """
    parts = {unit.unit: unit.content for unit in manifest.units if unit.content}
    if len(parts) < len(manifest.units):
        asked = manifest.options
        own_values = asked.transform is not None or asked.filter is not None
        raise UsageError(
            f"run {manifest.run_id} recorded no checksums of values: it was verified by --verify "
            f"{manifest.verified.level}",
            NEW_RUN
            if own_values
            else "unload with --verify full, or compare files and database: "
            "unloader verify DEST SOURCE --level source",
        )
    if manifest.options.file_per == "table":
        parts = {TABLE: total(tuple(parts.values()))}
    return fetched_of(
        schema_of(manifest),
        tuple(column.name for column in manifest.columns),
        parts,
        manifest.options.dialect,
    )


def part_of(manifest: Manifest, unit: FinishedUnit) -> str:
    """Return the part that a unit's files hold."""
    return TABLE if manifest.options.file_per == "table" else unit.unit


def schema_of(manifest: Manifest) -> str:
    """Return the Arrow schema of what was written, as far as its texts depend on it."""
    return schema_message([(column.name, _reading(column)) for column in manifest.columns])


def _reading(column: ColumnRecord) -> Reading:
    kind = column.output_type
    metadata = (("text_class", column.text_class),) if column.text_class else ()
    return Reading(
        expression="", output_type=kind, arrow_type=recorded_type(kind), metadata=metadata
    )
