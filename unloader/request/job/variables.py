"""Variables of the environment in the values of a job file: `${NAME}` and `${NAME:-default}`.

What a value says is shown in plans and logs and recorded in manifests. So a variable that holds a
secret, by its name or by what it holds, is refused: passwords have places of their own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from unloader.redaction import holds_secret, is_secret

_FORM = re.compile(r"\$(?P<literal>\$\{)|\$\{(?P<inside>[^{}]*)(?P<end>\})?")
_INSIDE = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>.*))?", re.DOTALL)

_SECRETIVE = re.compile(
    r"passw|passphrase|secret|token|credential|(?:^|_)pass(?:_|$)|_pwd(?:_|$)"
    r"|(?:api|access|private|encryption|parquet|mask|masking|hmac)_?key",
    re.IGNORECASE,
)
_OF_A_FILE = re.compile(r"_(?:file|path|dir|directory|name|id)$", re.IGNORECASE)
"""Such a variable says where a secret is found."""


def expanded(value: Any, environ: Mapping[str, str] = os.environ) -> Any:
    """Return a value with the variables in its texts replaced; keys of tables stay as they are.

    `$${` stands for `${` itself. An empty variable counts as one that is not set, as everywhere.

    Raises:
        ValueError: A variable is not set and has no default, holds a secret, or is not written
            as one; the message is fit for the user.
    """
    if isinstance(value, str):
        return _FORM.sub(lambda form: _replaced(form, environ), value)
    if isinstance(value, list):
        return [expanded(each, environ) for each in value]
    if isinstance(value, dict):
        return {key: expanded(each, environ) for key, each in value.items()}
    return value


def _replaced(form: re.Match[str], environ: Mapping[str, str]) -> str:
    if form["literal"]:
        return "${"
    inside = _INSIDE.fullmatch(form["inside"])
    if not form["end"] or inside is None:
        # What stands there is not shown: it may be anything.
        raise ValueError(
            "a ${ begins no variable; write ${NAME} or ${NAME:-default}, or $${ for ${ itself"
        )
    name, text = inside["name"], environ.get(inside["name"], "")
    if _is_secret(name) or holds_secret(text):
        raise ValueError(
            f"the variable {name} holds a secret, and values of a job file are shown and recorded; "
            "use password-file or another place of passwords"
        )
    if any("\ud800" <= each <= "\udfff" for each in text):
        raise ValueError(f"the variable {name} holds bytes that are not text")
    if text:
        return text
    if inside["default"] is None:
        raise ValueError(f"the variable {name} is not set; set it, or write ${{{name}:-default}}")
    return inside["default"]


def _is_secret(name: str) -> bool:
    if is_secret(name):
        return True
    return _SECRETIVE.search(name) is not None and _OF_A_FILE.search(name) is None
