"""Failures of runs whose columns are masked: no text of theirs shows a value that was read.

Errors of unloader's steps and writers name columns and show no value. A message of a database or
its driver about a row may show any value. So its words are left out, and its codes and the columns
that it names stay. Errors that another attempt may get past are about sessions and not about rows.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

from unloader.errors import (
    ConfigError,
    SnapshotGone,
    UnloaderError,
    error_of,
    failure_of,
    internal_failure,
    translate,
)
from unloader.model import AttemptFailure

if TYPE_CHECKING:
    from unloader.model import ReadColumn
    from unloader.transforms.model import TransformOptions

_SOURCES = "unloader.sources."
_WORKER = "unloader.worker."
_CODE = re.compile(r"\b(?:ORA|DPY|DPI|TNS)-\d{4,5}\b")
_MOST_NAMED = 5


def masks_any(transforms: Iterable[TransformOptions | None]) -> bool:
    """Return whether one of some outputs masks a column."""
    return any(each is not None and each.masked_columns for each in transforms)


def failure_without_values(error: BaseException, columns: Iterable[ReadColumn]) -> AttemptFailure:
    """Return an exception as data, without the parts that may show values."""
    known = translate(error)
    if known is None:
        text = f"its text is not shown, because columns are masked{_named(str(error), columns)}"
        return internal_failure(type(error).__name__, text, _frames(error))
    kept = known.retryable or isinstance(known, (ConfigError, SnapshotGone))
    if kept or not _is_of_source(error.__traceback__):
        return failure_of(error)
    codes = " ".join(dict.fromkeys(_CODE.findall(known.message)))
    return AttemptFailure(
        error=type(known).__name__,
        message="the source cannot give a row; its message is not shown, because columns are "
        f"masked{_named(known.message, columns)}" + (f" ({codes})" if codes else ""),
        hint=f"{known.hint}; to see the message, run without masks to null:rows",
        retryable=known.retryable,
        traceback=_frames(error),
    )


@contextmanager
def source_words_left_out(masked: bool, columns: Iterable[ReadColumn]) -> Iterator[None]:
    """Leave out of an error of the block the parts that may show values."""
    try:
        yield
    except UnloaderError as error:
        if not masked:
            raise
        known = error_of(failure_without_values(error, columns))
    else:
        return
    # Raised outside the block and without a cause: with --debug the cause's text would be shown,
    # too.
    raise known from None


def _named(text: str, columns: Iterable[ReadColumn]) -> str:
    names = [
        each.name for each in columns if re.search(rf"\bcolumn {re.escape(each.name)}\b", text)
    ]
    return f"; it names {', '.join(names[:_MOST_NAMED])}" if names else ""


def _is_of_source(trace: TracebackType | None) -> bool:
    """Return whether a frame of a source follows the last frame of the worker."""
    found = False
    for frame, _ in traceback.walk_tb(trace):
        name = str(frame.f_globals.get("__name__", ""))
        found = name.startswith(_SOURCES) or (found and not name.startswith(_WORKER))
    return found


def _frames(error: BaseException) -> str:
    """Return where an error was raised, without its text and the texts of its causes."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    return f"Traceback (most recent call last):\n{frames}{type(error).__name__}\n"
