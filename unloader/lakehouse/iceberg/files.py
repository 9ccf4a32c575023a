"""What Iceberg is told of each file: its rows, its size, and what its footer says of the values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unloader.errors import OutputFailed

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile
    from pyiceberg.table.metadata import TableMetadata

    from unloader.lakehouse.model import Commit


def schema_of(io: FileIO, commit: Commit) -> pa.Schema:
    """Return the columns of a run's files, all of which have the same.

    Raises:
        OutputFailed: There is no file.
    """
    import pyarrow.parquet as pq

    if not commit.files:
        raise OutputFailed(
            f"run {commit.run_id} has no file, so its columns are not known",
            "run again, and report this",
        )
    with io.new_input(commit.files[0].path).open() as file:
        return pq.read_schema(file)


def data_files(io: FileIO, metadata: TableMetadata, commit: Commit) -> list[DataFile]:
    """Return what is recorded of the files of a run; one without rows is left out.

    Raises:
        OutputFailed: A file is not the one that was written, or has no place in the table.
    """
    from pyiceberg.io.pyarrow import parquet_file_to_data_file

    from unloader.lakehouse.iceberg.partitions import check_file, several_partitions

    found: list[Any] = []
    for file in commit.files:
        if not file.rows:
            continue
        try:
            check_file(io, file.path, metadata, commit)
            one = parquet_file_to_data_file(io, metadata, file.path)
        except FileNotFoundError as error:
            raise _other(commit, f"{file.path} is gone") from error
        except ValueError as error:
            if metadata.spec().is_unpartitioned():
                raise
            raise several_partitions(file.path, str(error), commit) from error
        if (one.record_count, one.file_size_in_bytes) != (file.rows, file.bytes):
            raise _other(
                commit,
                f"{file.path} has {one.record_count} rows and {one.file_size_in_bytes} bytes, and "
                f"not {file.rows} and {file.bytes}",
            )
        found.append(one)
    return found


def _other(commit: Commit, what: str) -> OutputFailed:
    return OutputFailed(
        f"the files of run {commit.run_id} are not as they were written: {what}",
        "find out what has changed them; then run again",
    )
