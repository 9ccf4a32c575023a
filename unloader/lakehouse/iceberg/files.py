"""What an Iceberg table records of each file: rows, size, and the bounds in the file's footer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unloader.errors import OutputFailed
from unloader.lakehouse.iceberg.partitions import bounds_of, check_file, several_partitions

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
            f"run {commit.run_id} has no file, so its columns are unknown",
            "run again, and report this",
        )
    with io.new_input(commit.files[0].path).open() as file:
        return pq.read_schema(file)


def data_files(io: FileIO, metadata: TableMetadata, commit: Commit) -> list[DataFile]:
    """Return what is recorded of the files of a run; one without rows is left out.

    Raises:
        OutputFailed: A file is not the one that was written, or has no place in the table.
    """
    import pyarrow.parquet as pq
    from pyiceberg.io.pyarrow import parquet_file_to_data_file

    found: list[Any] = []
    for file in commit.files:
        if not file.rows:
            continue
        try:
            with io.new_input(file.path).open() as opened:
                footer = pq.read_metadata(opened)
            check_file(footer, file.path, metadata, commit)
            one = parquet_file_to_data_file(io, _with_true_bounds(metadata, footer), file.path)
        except FileNotFoundError as error:
            raise _other(commit, f"{file.path} is missing") from error
        except ValueError as error:
            if metadata.spec().is_unpartitioned():
                raise
            raise several_partitions(file.path, str(error), commit) from error
        if (one.record_count, one.file_size_in_bytes) != (file.rows, file.bytes):
            raise _other(
                commit,
                f"{file.path} has {one.record_count} rows and {one.file_size_in_bytes} bytes "
                f"instead of {file.rows} and {file.bytes}",
            )
        found.append(one)
    return found


def _with_true_bounds(metadata: TableMetadata, footer: Any) -> TableMetadata:
    """Return the metadata of a table with settings that suit the bounds in a file.

    pyiceberg takes the bounds of a file from the row groups that have bounds. They do not cover the
    other row groups, which have NaN or long text. So such a column gets counts only, and so does a
    column with days outside of Python's years. A column without statistics gets nothing.

    pyiceberg also shortens an upper bound of text, and replaces its last character by the next one.
    U+D7FF has no next one in UTF-8, so such text is not shortened.
    """
    modes = {}
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        for chunk in map(group.column, range(group.num_columns)):
            found = chunk.statistics
            if found is None:
                modes[chunk.path_in_schema] = "none"
            elif found.null_count == chunk.num_values:
                continue
            elif (bounds := bounds_of(found)) is None:
                modes[chunk.path_in_schema] = "counts"
            elif isinstance(bounds[1], str) and "\ud7ff" in bounds[1]:
                modes.setdefault(chunk.path_in_schema, "full")
    changed = {f"write.metadata.metrics.column.{name}": mode for name, mode in modes.items()}
    return metadata.model_copy(update={"properties": {**metadata.properties, **changed}})


def _other(commit: Commit, what: str) -> OutputFailed:
    return OutputFailed(
        f"the files of run {commit.run_id} were changed after they were written: {what}",
        "find out which program changed them; then run again",
    )
