"""Which files of a table are replaced: all, or those whose rows all meet a condition.

A file of which only some rows do is never written anew: that is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unloader.errors import OutputFailed, UsageError

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

    from unloader.lakehouse.model import Commit
    from unloader.model import LakeTable


def parsed_filter(text: str, schema: Schema) -> BooleanExpression:
    """Return a condition, its columns found in a table.

    Raises:
        UsageError: It cannot be read, or names what is not there.
    """
    from pyiceberg.expressions.parser import parse
    from pyiceberg.expressions.visitors import bind
    from pyparsing import ParseException

    try:
        return bind(schema, parse(text), case_sensitive=True)
    except (ParseException, ValueError, TypeError) as error:
        raise UsageError(
            f"--replace-where {text} is not a condition on the table: {error}",
            "write it as pyiceberg does, such as: DAY = '2026-01-31'",
        ) from error


def replaced_files(table: Table, target: LakeTable) -> list[DataFile]:
    """Return the files of the branch that go; one that is not there yet has those of main.

    Raises:
        OutputFailed: Some rows of a file meet the condition, and some may not.
    """
    refs = table.metadata.refs
    branch = next((each for each in (target.branch, "main") if each in refs), None)
    if branch is None:
        return []
    files: list[Any] = [task.file for task in table.scan().use_ref(branch).plan_files()]
    if target.replace_where is None:
        return files
    return _matching(files, table, target)


def _matching(files: list[Any], table: Table, target: LakeTable) -> list[DataFile]:
    from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluator, _StrictMetricsEvaluator

    assert target.replace_where is not None
    schema = table.schema()
    condition = parsed_unbound(target.replace_where)
    may_match = _InclusiveMetricsEvaluator(schema, condition).eval
    must_match = _StrictMetricsEvaluator(schema, condition).eval
    gone: list[DataFile] = []
    mixed: list[DataFile] = []
    for file in files:
        if not may_match(file):
            continue
        (gone if must_match(file) else mixed).append(file)
    if mixed:
        raise OutputFailed(
            f"{len(mixed)} files of {target.name} contain, or may contain, both rows that meet "
            f"--replace-where {target.replace_where} and other rows, first {mixed[0].file_path}; "
            "files are replaced as a whole",
            "choose a condition that matches whole files; or delete the rows first with an "
            "engine that rewrites files, and append",
        )
    return gone


def check_condition(files: list[DataFile], metadata: TableMetadata, commit: Commit) -> None:
    """Refuse new files with rows that may not meet the condition: those would stay for ever.

    Raises:
        OutputFailed: There is one.
    """
    from pyiceberg.expressions.visitors import _StrictMetricsEvaluator

    text = commit.table.replace_where
    if text is None:
        return
    must_match = _StrictMetricsEvaluator(metadata.schema(), parsed_unbound(text)).eval
    for file in files:
        if not must_match(file):
            raise OutputFailed(
                f"{file.file_path} of run {commit.run_id} contains, or may contain, rows that do "
                f"not meet --replace-where {text}",
                "read the same rows with --where, and run again",
            )


def parsed_unbound(text: str) -> BooleanExpression:
    """Return a condition that `parsed_filter` has accepted."""
    from pyiceberg.expressions.parser import parse

    return parse(text)
