"""Tables that are partitioned: each file must hold one value of each partition field.

No row is moved between files for that. What a file holds is read from its statistics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unloader.errors import OutputFailed

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.table.metadata import TableMetadata

    from unloader.lakehouse.model import Commit

_HINT = (
    "read one partition of the table at a time with --where, or write to a table without partitions"
)


def check_spec(spec: PartitionSpec, name: str) -> None:
    """Refuse a partition field of which the ends of a range do not tell the value.

    Raises:
        OutputFailed: There is one, such as a bucket.
    """
    for field in spec.fields:
        if not field.transform.preserves_order:
            raise OutputFailed(
                f"the table {name} is partitioned by {field.name} ({field.transform}), and rows "
                "are not sorted into partitions",
                "write to a table without such partitions",
            )


def check_file(file: DataFile, metadata: TableMetadata, commit: Commit) -> None:
    """Refuse a file whose rows belong to several partitions, null being one of them.

    Raises:
        OutputFailed: It has nulls and values.
    """
    for field in metadata.spec().fields:
        nulls = (file.null_value_counts or {}).get(field.source_id)
        if nulls not in (0, file.record_count):
            raise OutputFailed(
                f"{file.file_path} holds rows of several partitions: {nulls or 'maybe some'} of "
                f"its {file.record_count} rows have no value for {field.name}; nothing of run "
                f"{commit.run_id} was committed to {commit.table.name}",
                _HINT,
            )
