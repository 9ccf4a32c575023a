"""The pages that are made from the options, the commands and the events of the program.

    python tests/support/schemas/option_pages.py cli > docs/cli.md
    python tests/support/schemas/option_pages.py job > docs/job.schema.json
    python tests/support/schemas/option_pages.py log > docs/log.schema.json

With the word `statuses`, it is the first table of docs/exit-statuses.md.

The schema of job files is for editors. Keys are spelled with hyphens and in lower case there, which
is one of the ways that a job file may spell them. It has the values of single keys; `unloader
check` checks the keys together.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, get_args

import click
import msgspec
from msgspec.json import schema_components

from unloader.cli import streams
from unloader.cli.commands.help import STATUSES
from unloader.cli.display import log
from unloader.cli.group import COMMANDS, group
from unloader.cli.options.command import JobOption, examples, sections
from unloader.events import PhaseStarted
from unloader.request.job_files import DEFAULTS, INCLUDE, NAME, ROUTE, RUN, SHOWN, SOURCE, TABLE
from unloader.request.option import Option, Scope, of_scope
from unloader.request.options import options_of
from unloader.request.settings import ROUTE_NAME

Rows = dict[str, list[str]]
"""The rows of options, by their groups."""

PLACES = {
    0: "all files and `_manifest.json`",
    1: "no new file has a final name",
    2: "unchanged",
    3: "no new file has a final name",
    4: "no new file has a final name",
    5: "unchanged",
    6: "no new file has a final name; an earlier run is unchanged",
    7: "finished units in `_run/`; complete tables: see [below](#several-tables)",
    8: "after `run`, no new file has a final name; after `verify`, unchanged",
    9: "all files and `_manifest.json`",
    10: "all files and `_manifest.json`",
    130: "finished units in `_run/`; no new file has a final name",
}
"""The destination after a run with each exit status."""

_HEAD = "| option | meaning | default |\n|---|---|---|"


def reference() -> str:
    """Return the page as Markdown, the same for every version of click."""
    root = click.Context(group, info_name="unloader")
    found = [each for name in COMMANDS if (each := group.get_command(root, name)) is not None]
    tables = {str(each.name): _rows(each, root) for each in found}
    commands: dict[str, list[str]] = {}
    for name, groups in tables.items():
        for row in (row for rows in groups.values() for row in rows):
            commands.setdefault(row, []).append(f"`{name}`")
    shared = {row: of for row, of in commands.items() if len(of) > 1}
    by_group: dict[str, dict[str, None]] = {}
    for table in (tables["run"], *tables.values()):
        for heading, rows in table.items():
            of_group = (row for row in rows if row in shared)
            by_group.setdefault(heading, {}).update(dict.fromkeys(of_group))
    statuses = [f"| {code} | {meaning} |" for code, meaning in STATUSES.items()]
    parts = [
        Path(__file__).with_name("cli_introduction.md").read_text("utf-8"),
        *("## Before the command\n", _HEAD, *chain(*_rows(group, root).values()), ""),
        *("## Exit status\n", "| status | meaning |\n|---|---|", *statuses, ""),
        "## Shared options\n",
    ]
    for heading, known in by_group.items():
        if known:
            head = "| option | meaning | default | commands |\n|---|---|---|---|"
            parts += [f"### {heading}\n", head]
            parts += [f"{row} {', '.join(shared[row])} |" for row in known] + [""]
    for each in found:
        parts += _command(each, root, tables[str(each.name)], shared)
    return "\n".join(parts)


def _rows(command: click.Command, root: click.Context) -> Rows:
    return {
        heading: [_row(each) for each in options if isinstance(each, JobOption)]
        for heading, options in sections(command, root).items()
        if isinstance(options[0], JobOption)
    }


def _command(
    command: click.Command, root: click.Context, table: Rows, shared: dict[str, list[str]]
) -> Iterator[str]:
    context = click.Context(command, info_name=command.name, parent=root)
    arguments = [each for each in command.params if isinstance(each, click.Argument)]
    shown = [
        ("{}" if each.required else "[{}]").format(each.metavar or str(each.name).upper())
        for each in arguments
    ]
    yield f"## {context.command_path}\n"
    yield f"    {' '.join((context.command_path, *shown, '[OPTIONS]'))}\n"
    paragraphs = (command.help or "").split("\n\n")
    yield "\n\n".join(" ".join(part.split()) for part in paragraphs) + "\n"
    yield "\n".join(("```sh", *examples(command), "```\n"))
    own = [row for rows in table.values() for row in rows if row not in shared]
    if own:
        yield "\n".join((_HEAD, *own, ""))
    others = [
        f"- [{heading}](#{heading.lower()}): {' '.join(names)}"
        for heading, rows in table.items()
        if (names := [f"`{_flag(row)}`" for row in rows if row in shared])
    ]
    if others:
        yield "\n".join(("Shared options:\n", *others, ""))


def _flag(row: str) -> str:
    """Return the first name of the option of a row."""
    return row.removeprefix("| `").partition("`")[0].partition("/")[0].partition(" ")[0]


def _row(option: JobOption) -> str:
    shown, initial = "/".join((*option.opts, *option.secondary_opts)), option.default
    if not option.is_flag:
        shown += f" {option.declared.metavar or option.declared.kind.shown}"
    default = f"`{_cell(str(initial))}`" if isinstance(initial, (str, int)) else ""
    if option.required:
        default = "required"
    elif isinstance(option.show_default, str):
        default = _cell(option.show_default)
    elif option.is_flag:
        default = "on" if initial is True and option.secondary_opts else "off"
    return f"| `{_cell(shown)}` | {_cell(option.declared.help)} | {default} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def status_table() -> str:
    """Return the table of docs/exit-statuses.md."""
    lines = ["| status | meaning | the destination after a run |", "|---|---|---|"]
    lines += [f"| {code} | {meaning} | {PLACES[code]} |" for code, meaning in STATUSES.items()]
    return "\n".join(lines) + "\n"


_VARIABLE = r"\$\{"
_TEXTS = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}


def job_schema() -> str:
    """Return docs/job.schema.json."""
    keys: dict[str, dict[str, Any]] = {}
    for scope in get_args(Scope):
        names = (n for each in of_scope(options_of("run"), scope) for n in _keys_of(each))
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
    known = (_keys_of(each) for each in of_scope(options_of("run"), "run"))
    definitions = {name: each for of_option in known for name, each in of_option.items()}
    found = {
        # The newest that editors of TOML know.
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "A job file of unloader",
        **_object(top),
        "definitions": {**entries, **definitions},
    }
    return json.dumps(found, indent=2) + "\n"


def _object(keys: dict[str, Any], what: str = "") -> dict[str, Any]:
    found = {"type": "object", "properties": keys, "additionalProperties": False}
    return {**found, "description": what} if what else found


def _list_of(kind: str, what: str = "") -> dict[str, Any]:
    found = {"type": "array", "items": {"$ref": f"#/definitions/{kind}-entry"}}
    return {**found, "description": what} if what else found


def _keys_of(option: Option) -> dict[str, Any]:
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


_TEXT: Mapping[str, Any] = {"type": "string"}
_STAMPS = dict.fromkeys(("at", "ts", "run_id"), _TEXT)
"""`at` is ISO 8601 in UTC with milliseconds, and `ts` the same under its name before there was a
version. `run_id` is empty until the run is planned, and in commands without a run."""

_OTHERS: Mapping[str, Mapping[str, Any]] = {
    "stopping": {"text": _TEXT},
    "hook": {"hook": {"enum": ["on-failure", "on-success"]}, "text": _TEXT},
    "error": {
        **dict.fromkeys(("kind", "message", "hint"), _TEXT),
        "exit_code": {"type": "integer"},
        "traceback": {"anyOf": [_TEXT, {"type": "null"}]},
    },
    "debug": dict.fromkeys(("level", "logger", "text"), _TEXT),
    "output": {"text": _TEXT},
}
"""Lines that no record describes. `error` is the end of a command that failed, always the last
line, `hook` a line that a command at the end of the run has written, and `output` text that a
library wrote to stderr."""


def log_schema() -> str:
    """Return docs/log.schema.json: the schema of one line of a log in JSON."""
    kinds = {name: kind for kind, name in log.NAMES.items()}
    kinds |= {"phase_started": PhaseStarted}
    kinds |= dict.fromkeys(("progress", "run_finished", "run_stopped"), log.Progress)
    refs, found = schema_components(kinds.values(), ref_template="#/$defs/{name}")
    names = [ref["$ref"].removeprefix("#/$defs/") for ref in refs]
    lines = dict(_OTHERS)
    lines |= {event: found[name]["properties"] for event, name in zip(kinds, names, strict=True)}
    head = {"version": {"enum": [streams.VERSION]}, "event": _TEXT, **_STAMPS}
    # A field with a default is in each line, except where a record leaves its defaults out.
    lacking = {event for event, kind in kinds.items() if kind.__struct_config__.omit_defaults}
    made = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A line of unloader --log-format json",
        "anyOf": [
            {
                "title": event,
                "type": "object",
                "properties": {**properties, "event": {"enum": [event]}},
                "required": [
                    name
                    for name, each in properties.items()
                    if not (event in lacking and "default" in each)
                ],
                "additionalProperties": False,
            }
            for event, own in lines.items()
            for properties in ({**head, **own},)
        ],
        "$defs": {name: each for name, each in found.items() if name not in names},
    }
    return json.dumps(made, indent=2) + "\n"


PAGES = {"cli": reference, "statuses": status_table, "job": job_schema, "log": log_schema}

if __name__ == "__main__":
    sys.stdout.write(PAGES[sys.argv[1]]())
