"""A page as a file."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from unloader.errors import ConfigError
from unloader.report import page
from unloader.report.charts import drawing
from writers.files.regular import open_regular


def check(path: Path) -> None:
    """Find out, before anything long is begun, whether a page can be made and written.

    Raises:
        ConfigError: A library is missing, or there is no such directory, or it is not writable.
    """
    page.check()
    drawing.check()
    if path.is_dir():
        raise _cannot(path, "it is a directory")
    if path.exists() and not _may_be_replaced(path):
        raise _cannot(path, "it contains something that is not a page")
    if not path.parent.is_dir():
        raise _cannot(path, f"the directory {path.parent} does not exist")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise _cannot(path, f"{path.parent} is not writable")


def _may_be_replaced(path: Path) -> bool:
    """Return whether a file is an earlier page, or empty, or no file: a manifest is not lost."""
    if not path.is_file():
        return True
    try:
        with open(open_regular(path, follow=True), "rb") as file:
            start = file.read(64).lstrip().lower()
    except OSError:
        return False
    return not start or start.startswith(b"<!doctype html")


def write(path: Path, text: str) -> None:
    """Replace the file; whoever opens it finds the former page or this one.

    Raises:
        ConfigError: The file system refused.
    """
    made = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(made, path)
    except OSError as error:
        with suppress(OSError):
            os.unlink(made)
        raise _cannot(path, error.strerror or str(error)) from error


def _cannot(path: Path, why: str) -> ConfigError:
    return ConfigError(
        f"cannot write the report {path}: {why}", "give another file, or create the directory"
    )
