"""What all formats of tables refuse in the same words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from unloader.errors import OutputFailed

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_TOLD = 5


def no_exact_type(field: pa.Field, arrow: pa.DataType, kind: str) -> OutputFailed:
    """Return the refusal of a column of the files whose type no table of a kind has."""
    return OutputFailed(
        f"column {field.name!r} has the type {arrow}, which no {kind} table holds exactly",
        f"write it as text with --as-text '{field.name}', cast it in a --query, or leave it out "
        f"with --exclude '{field.name}'",
    )


def other_columns(name: str, wrong: Sequence[str]) -> OutputFailed:
    """Return the refusal of a table whose columns are not those of the files.

    Args:
        name: Of the table.
        wrong: What differs; the first few are told.
    """
    told, rest = wrong[:_MOST_TOLD], len(wrong) - _MOST_TOLD
    more = f"; and {rest} more differences" if rest > 0 else ""
    return OutputFailed(
        f"the columns of {name} are others than those of the run: {'; '.join(told)}{more}",
        "choose the columns with --columns or --exclude, cast them in a --query, or change the "
        "table",
    )
