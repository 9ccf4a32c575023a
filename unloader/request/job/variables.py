"""Variables of the environment in the values of a job file: `${NAME}` and `${NAME:-default}`.

Values of a job file are shown in plans and logs and recorded in manifests, and a variable of any
name may hold a secret. So only those that the file declares, with `shown-variables`, may be used.
`session-sql` is never shown, and takes every variable.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from typing import Any

from unloader.redaction import holds_secret, is_secret, learn

SHOWN = "shown-variables"
"""The key of the names of variables that may be shown."""

FORM = re.compile(r"\$(?P<literal>\$\{)|\$\{(?P<inside>[^{}]*)(?P<end>\})?")
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_INSIDE = re.compile(rf"(?P<name>{_NAME})(?::-(?P<default>.*))?", re.DOTALL)


def shown_variables(content: Mapping[str, Any]) -> frozenset[str]:
    """Return the names that one file declares.

    Raises:
        ValueError: They are not names of variables; the message is fit for the user.
    """
    names: list[Any] = []
    for key, value in content.items():
        if key.replace("_", "-").lower() == SHOWN:
            names.extend(value if isinstance(value, list) else [value])
    if not all(isinstance(each, str) and re.fullmatch(_NAME, each) for each in names):
        raise ValueError('it is not a list of names of variables; write shown-variables = ["NAME"]')
    return frozenset(names)


def expanded(
    value: Any, shown: Collection[str] | None, environ: Mapping[str, str] = os.environ
) -> Any:
    """Return a value with the variables in its texts replaced; keys of tables stay as they are.

    `$${` is `${` itself. An empty variable counts as one that is not set, as everywhere.

    Args:
        value: As TOML has it.
        shown: The variables that may be shown; None where the text is never shown. There any
            variable may be used, and what it holds is hidden from now on.
        environ: The variables.

    Raises:
        ValueError: A variable may not be used, is not set and has no default, or is not written
            as one; the message is fit for the user.
    """
    if isinstance(value, str):
        return FORM.sub(lambda form: _replaced(form, shown, environ), value)
    if isinstance(value, list):
        return [expanded(each, shown, environ) for each in value]
    if isinstance(value, dict):
        return {key: expanded(each, shown, environ) for key, each in value.items()}
    return value


def _replaced(
    form: re.Match[str], shown: Collection[str] | None, environ: Mapping[str, str]
) -> str:
    if form["literal"]:
        return "${"
    inside = _INSIDE.fullmatch(form["inside"])
    if not form["end"] or inside is None:
        # What is written there is not shown: it may be anything.
        raise ValueError(
            "a ${ does not begin a variable; write ${NAME}, ${NAME:-default}, or $${ for ${ itself"
        )
    name, text = inside["name"], environ.get(inside["name"], "")
    if shown is None:
        learn(text)
    elif is_secret(name) or holds_secret(text):
        raise ValueError(
            f"the variable {name} holds a secret, and values of a job file are shown and recorded; "
            "use password-file or another place of passwords"
        )
    elif name not in shown:
        raise ValueError(
            f"the variable {name} may hold a secret, and values of a job file are shown and "
            f'recorded; if others may see it, write shown-variables = ["{name}"] at the top of the '
            "file, or add the name to that list"
        )
    if any("\ud800" <= each <= "\udfff" for each in text):
        raise ValueError(f"the variable {name} holds bytes that are not text")
    if text:
        return text
    if inside["default"] is None:
        raise ValueError(f"the variable {name} is not set; set it, or write ${{{name}:-default}}")
    return inside["default"]
