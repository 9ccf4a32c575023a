"""Reads a job file: the options of a job in TOML, each mistake reported with file, line and key."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from unloader.errors import ConfigError, UsageError
from unloader.json_reading import read_text

PASSWORD_KEYS = ("password", "passwd", "passwort", "pwd", "pass", "secret", "token")

_UNSHOWN = "it has an unknown key or table"

RUN_TABLE = "run"
"""The one table of a job file; its keys may as well stand at the top."""


def read_job_file(
    path: Path, known: Collection[str], others: Collection[str] = ()
) -> dict[str, Any]:
    """Return the keys of a TOML job file, with underscores, as TOML has the values.

    Args:
        path: The file; its keys stand at the top or in the table `[run]`, in any case.
        known: The keys there are, with underscores.
        others: Names of options, with underscores, that stand on the command line alone.

    Raises:
        ConfigError: The file cannot be read or is not TOML.
        UsageError: A key is unknown or given twice, or the file holds a password.
    """
    document = _read_toml(path)
    values: dict[str, Any] = {}
    for written, value in _entries(path, document):
        key = written.replace("-", "_").lower()
        if key in PASSWORD_KEYS:
            raise UsageError(
                f"{path} holds a password, where backups and version control find it",
                "use the key password-file, or set UNLOADER_PASSWORD",
            )
        if key not in known and isinstance(value, (dict, list)) and _has_tables(value):
            raise UsageError(
                f"{place_in(path, written)}: "
                + (f"there is no table [{written}]" if _may_be_shown(written) else _UNSHOWN),
                f"write its keys at the top of the file, or below a line [{RUN_TABLE}]",
            )
        if key in others and key not in known:
            raise UsageError(
                f"{place_in(path, written)}: a job file holds options of run, not {written}",
                f"give --{key.replace('_', '-')} on the command line",
            )
        if key not in known:
            raise _no_key(path, written, known)
        if key in values:
            raise UsageError(
                f"{place_in(path, written)}: the key {written!r} is there twice",
                "remove one of the two",
            )
        values[key] = value
    return values


def place_in(path: Path, key: str) -> str:
    """Return the file, and the line of a key if it is known; for messages."""
    wanted = re.escape(key.replace("_", "-")).replace(r"\-", "[-_]")
    begins = re.compile(rf"\s*\[*\s*(run\s*\.\s*)?[\"']?{wanted}[\"']?\s*(=|\]|\.)", re.IGNORECASE)
    with suppress(OSError, UnicodeDecodeError):
        lines = path.read_text("utf-8-sig").splitlines(keepends=True)
        for number, line in enumerate(lines, 1):
            # What looks like a key within a text of several lines is none.
            if begins.match(line) and _is_toml("".join(lines[: number - 1])):
                return f"{path}, line {number}"
    return str(path)


def _entries(path: Path, document: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for written, value in document.items():
        if written.lower() != RUN_TABLE:
            yield written, value
        elif isinstance(value, dict):
            yield from value.items()
        else:
            raise UsageError(
                f"{place_in(path, written)}: {written!r} is not a table, or more than one",
                f"write its keys below one line [{RUN_TABLE}]",
            )


def _has_tables(value: Any) -> bool:
    return isinstance(value, dict) or any(isinstance(each, dict) for each in value)


def _may_be_shown(written: str) -> bool:
    """Return whether something looks like the name of an option, not like a secret."""
    return re.fullmatch("[A-Za-z]+([-_][A-Za-z]+)*", written) is not None


def _no_key(path: Path, written: str, known: Collection[str]) -> UsageError:
    """Return the error for a key that there is not; one that looks like no key is not shown."""
    from difflib import get_close_matches

    names = [name.replace("_", "-") for name in known]
    near = get_close_matches(written.replace("_", "-").lower(), names, n=1, cutoff=0.5)
    shown = f"there is no key {written!r}" if _may_be_shown(written) else _UNSHOWN
    return UsageError(
        f"{place_in(path, written)}: {shown}",
        f"did you mean {near[0]!r}?" if near else "use one of: " + ", ".join(sorted(names)),
    )


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        # Editors of Windows put a mark of the byte order in front.
        return _loads(read_text(path).removeprefix("\ufeff"))
    except OSError as error:
        raise ConfigError(
            f"the job file {path} cannot be read: {error.strerror}", "check the path"
        ) from error
    except UnicodeDecodeError:
        raise ConfigError(f"the job file {path} is not UTF-8 text", "save it as UTF-8") from None
    except RecursionError as error:
        raise ConfigError(
            f"the job file {path} is not TOML: it is nested too deeply", "correct the file"
        ) from error
    except ValueError as error:
        # The parser may repeat a key or a character, maybe a secret: only the place is shown.
        place = re.search(r"at (line \d+, column \d+|end of document)", str(error))
        where = f" at {place[1].replace('end of document', 'its end')}" if place else ""
        raise ConfigError(
            f"the job file {path} is not TOML{where}",
            "correct it: KEY = VALUE on each line, texts in double quotes, each key once",
        ) from None


def _is_toml(text: str) -> bool:
    try:
        _loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _loads(text: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    document: dict[str, Any] = tomllib.loads(text)
    return document
