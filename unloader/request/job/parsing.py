"""A job file's text as TOML has it, and what is said of one that is none."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from unloader.errors import ConfigError
from writers.files.regular import read_regular


def read_toml(path: Path) -> tuple[str, dict[str, Any]]:
    """Return the text of a job file, and what it says.

    Raises:
        ConfigError: It cannot be read or is not TOML.
    """
    try:
        # Editors of Windows put a mark of the byte order in front.
        text = read_regular(path, follow=True).decode().removeprefix("\ufeff")
        return text, loads(text)
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


def loads(text: str) -> dict[str, Any]:
    """Return what a TOML text says.

    Raises:
        ValueError: It is none.
        RecursionError: It is nested too deeply.
    """
    import tomllib

    document: dict[str, Any] = tomllib.loads(text)
    return document
