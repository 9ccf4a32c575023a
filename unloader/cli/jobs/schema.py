"""The JSON Schema of job files, made from the declared options; for editors.

Written into the docs by: python -m unloader.cli.jobs.schema > docs/job.schema.json

Keys are spelled with hyphens and in lower case there, which is one of the ways that a job file may
spell them. It has the values of single keys; `unloader check` checks the keys together.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any, get_args

import msgspec

from unloader.request.job_files import DEFAULTS, INCLUDE, NAME, ROUTE, RUN, SHOWN, SOURCE, TABLE
from unloader.request.option import Option, Scope, of_scope
from unloader.request.options import options_of
from unloader.request.settings import ROUTE_NAME

DRAFT = "http://json-schema.org/draft-07/schema#"
"""The newest that editors of TOML know."""

_VARIABLE = r"\$\{"
_TEXTS = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}


def schema() -> dict[str, Any]:
    keys: dict[str, dict[str, Any]] = {}
    for scope in get_args(Scope):
        names = (n for each in of_scope(options_of("run"), scope) for n in _definitions(each))
        keys[scope] = {name: {"$ref": f"#/definitions/{name}"} for name in names}
    entries = {
        f"{TABLE}-entry": _object(
            {**keys[TABLE], ROUTE: _list_of(ROUTE, "Outputs of this table alone.")},
            "One table or query, with its own keys.",
        ),
        f"{ROUTE}-entry": _object(
            {
                NAME: {
                    "type": "string",
                    "pattern": f"^{ROUTE_NAME.pattern}$",
                    "description": "Name of the route.",
                },
                **keys[ROUTE],
            },
            "One output: its columns, rows, format and destination.",
        ),
    }
    source = {"type": "string", "description": "URL of the source, without a password."}
    top = {
        SOURCE: source,
        INCLUDE: {
            **_TEXTS,
            "description": "Job files that this one overrides, relative to this file.",
        },
        SHOWN: {
            **_TEXTS,
            "description": "Environment variables that values of this job may use. Their "
            "contents are shown and recorded.",
        },
        RUN: _object({SOURCE: source, **keys[RUN]}, "The same keys as at the top."),
        DEFAULTS: _object(keys[RUN], "Values of keys that are not set elsewhere."),
        ROUTE: _list_of(ROUTE, "Outputs of each table without separate outputs."),
        **keys[RUN],
        TABLE: {"anyOf": [keys[RUN][TABLE], _list_of(TABLE)]},
    }
    known = (_definitions(each) for each in of_scope(options_of("run"), "run"))
    definitions = {name: each for of_option in known for name, each in of_option.items()}
    return {
        "$schema": DRAFT,
        "title": "A job file of unloader",
        **_object(top),
        "definitions": {**entries, **definitions},
    }


def text() -> str:
    return json.dumps(schema(), indent=2) + "\n"


def _object(keys: dict[str, Any], what: str = "") -> dict[str, Any]:
    found = {"type": "object", "properties": keys, "additionalProperties": False}
    return {**found, "description": what} if what else found


def _list_of(kind: str, what: str = "") -> dict[str, Any]:
    found = {"type": "array", "items": {"$ref": f"#/definitions/{kind}-entry"}}
    return {**found, "description": what} if what else found


def _definitions(option: Option) -> dict[str, Any]:
    """Return the values, the meaning and the default of the keys of an option."""
    forms = list(_forms(option))
    words = [option.help]
    if option.default_text:
        words.append(f"Default: {option.default_text}.")
    if option.formats:
        words.append(f"Only for format {' and '.join(option.formats)}.")
    values: dict[str, Any] = forms[0] if len(forms) == 1 else {"anyOf": forms}
    found = {**values, "description": " ".join(words)}
    if (initial := option.initial) is not None and not option.multiple:
        as_it_is = option.is_flag or option.kind.is_whole
        found["default"] = initial if as_it_is else option.kind.write(initial)
    opposite = {"type": "boolean", "description": f"The opposite of {option.name}."}
    return {option.name: found, **({f"no-{option.name}": opposite} if option.opposite else {})}


def _forms(option: Option) -> Iterable[dict[str, Any]]:
    """Yield the types of values in a job file; each text except a command may have a variable."""
    kind = option.kind
    found = msgspec.json.schema(kind.toml)
    for form in found.get("anyOf", [found]):
        if form["type"] == "string":
            if kind.choices:
                yield {"enum": list(kind.choices)}
            pattern = "^[0-9]+$" if kind.is_whole else kind.pattern
            both = "|".join(filter(None, (pattern, _VARIABLE)))
            yield {**form, "pattern": both} if pattern or kind.choices else form
        elif form["type"] in ("integer", "number"):
            limits = {"minimum": kind.minimum, "maximum": kind.maximum}
            yield {**form, **{key: each for key, each in limits.items() if each is not None}}
        else:
            yield form


if __name__ == "__main__":
    sys.stdout.write(text())
