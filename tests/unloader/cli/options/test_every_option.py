"""One list of options: each reaches its field from each place, and nothing else is needed for it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any, get_args

import click
import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from schemas.option_pages import reference

from unloader import api
from unloader.cli.commands import run as run_commands
from unloader.cli.commands.plan import plan
from unloader.cli.commands.run import run
from unloader.cli.group import group
from unloader.cli.options.command import JobOption, declared
from unloader.cli.options.source_argument import SourceArgument, source_argument
from unloader.cli.streams import Invocation
from unloader.model import Request, SessionOptions, ValueOptions
from unloader.request import job_options, options
from unloader.request import value_types as kinds
from unloader.request.option import Effect, Option
from unloader.request.options import every_option, options_of, recorded
from unloader.selection.asked import TablesRequest
from unloader.sources.registry import SOURCES, source_of

RUN_OPTIONS = options_of("run")
REQUESTED = [each for each in RUN_OPTIONS if each.effect != "unrecorded" and each.in_files]

BY_NAME = {
    "table": "OTHER",
    "decimal-separator": ";",
    "encrypt-to": "age1x",
    "file-name": "x{unit}.{ext}",
    "mask": "A=truncate,characters=3",
    "to": "elsewhere",
}
"""Values of options whose examples need something else."""
OF_TABLES = {
    option.name
    for option in every_option()
    if option.group == "Tables" and option.declared_in is job_options.JobOptions
}
"""They mean something where there are several tables."""


def sample(option: Option) -> str:
    """Return a text for a value that is not the default; of a flag `true` or `false`."""
    if option.is_flag:
        # The usual dialect has a header.
        return "false" if option.name == "header" else str(not option.initial).lower()
    if option.kind.choices:
        return next(each for each in reversed(option.kind.choices) if each != option.initial)
    words = shlex.split((option.example or option.kind.example).replace("\\\n", ""))
    named = f"--{option.name}"
    return BY_NAME.get(option.name) or words[words.index(named) + 1 if named in words else 0]


OF_LAKE_TABLES = {
    "save-mode": (),
    "replace-where": ("--save-mode", "overwrite"),
    "branch": ("--save-mode", "append"),
    "partition-by": (),
}
SOURCE_OF = {
    **dict.fromkeys(("enable-row-security", "keep-snapshot", "lock-timeout"), "postgresql://u@h/d"),
    **dict.fromkeys(("split-by", "odbc-dialect", "odbc-value-bytes"), "odbc:DSN=d;UID=u"),
}
"""Sources of the options that not all sources have."""


def around(option: Option) -> list[str]:
    """Return the arguments without which the option means nothing."""
    found = [SOURCE_OF.get(option.name, "oracle://u@h/s")]
    if option.name == "query-name":
        found += ["--query", "SELECT 1"]
    elif option.name not in ("table", "query"):
        found += ["--table", "T"]
    if option.name in OF_TABLES:
        return [*found, "--table", "T*", "--to", "out/{table}"]
    dated = option.name in ("keep", "latest-link")
    found += ["--to", "out/{date}" if dated else "out"] if option.name != "to" else []
    if option.name in OF_LAKE_TABLES:
        mode = OF_LAKE_TABLES[option.name]
        found[-1:] = ["iceberg://lake/ns.t", "--format", "parquet", *mode]
    found += ["--slow-between", "8:00-9:00"] if option.name == "slow-parallelism" else []
    found += ["--sample", "5%"] if option.name == "sample-by" else []
    found += ["--lob-files", "P"] if option.name in ("lob-layout", "lob-name") else []
    found += ["--lob-layout", "files"] if option.name == "lob-name" else []
    named = option.name == "parquet-key-name"
    found += ["--format", "parquet"] if named or "parquet" in option.formats else []
    found += ["--parquet-key-file", "key"] if named else []
    return found + (["--fixed"] if option.name == "width" else [])


def requested(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], variables: dict[str, str]
) -> Request | TablesRequest:
    """Return the request that a call of `run` makes, without its settings."""
    seen: list[Request | TablesRequest] = []

    def unload(asked: Request | TablesRequest, *_: Any, **__: Any) -> None:
        if isinstance(asked, Request):
            seen.append(replace(asked, settings=()))
            raise click.exceptions.Exit(0)
        entries = (replace(e, request=replace(e.request, settings=())) for e in asked.entries)
        options = replace(asked.options, settings=())
        seen.append(replace(asked, entries=tuple(entries), options=options))
        raise click.exceptions.Exit(0)

    monkeypatch.setattr(api, "unload", unload)
    result = CliRunner().invoke(group, ["run", *arguments], env=variables, obj=Invocation())
    assert seen, (result.output, result.exception)
    return seen[0]


@pytest.mark.parametrize("option", REQUESTED, ids=lambda option: option.name)
def test_an_option_reaches_its_field_from_each_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, option: Option
) -> None:
    """The command line, a variable and a job file say the same of a value, in its own field."""
    monkeypatch.chdir(tmp_path)
    Path("tables.txt").write_text("OTHER\n", "utf-8")
    text, others = sample(option), around(option)
    base = others + {
        "table": ["--table", "T"],
        "to": ["--to", "out"],
        "query": ["--table", "T"],
    }.get(option.name, [])
    flag = f"--{option.name}" if text != "false" else f"--no-{option.name}"
    written = requested(
        monkeypatch, [*others, flag] if option.is_flag else [*others, flag, text], {}
    )
    by_variable = requested(monkeypatch, others, {option.variables[0]: text})
    value = text if option.is_flag else json.dumps(text)
    Path("job.toml").write_text(f'source = "{others[0]}"\n{option.name} = {value}\n', "utf-8")
    by_file = requested(monkeypatch, [*others, "job.toml"], {})
    assert written == by_variable == by_file
    usual = requested(monkeypatch, base, {})
    if option.owner is not None:
        key = option.record or option.key
        assert recorded(written, [key]) != recorded(usual, [key])
    assert written != usual


@pytest.mark.parametrize("command", [run, plan], ids=["run", "plan"])
def test_every_parameter_is_one_of_the_list(command: click.Command) -> None:
    """No command has an option outside the list."""
    shown = [each for each in command.params if isinstance(each, click.Option) and not each.hidden]
    declared = [each.declared for each in shown if isinstance(each, JobOption)]
    assert len(declared) == len(shown)
    assert declared == list(options_of(str(command.name)))


@pytest.mark.parametrize("option", every_option(), ids=lambda option: option.name)
def test_a_declaration_is_whole(option: Option) -> None:
    """It has help, a group, a command, a key and an effect; its default reads back as shown."""
    assert option.help.endswith(".")
    assert option.group
    assert option.commands
    assert option.key.isidentifier()
    assert option.effect in get_args(Effect)
    if option.initial is not None and not option.multiple and not option.is_flag:
        assert option.kind.read(option.kind.write(option.initial)) in (
            option.initial,
            str(option.initial),
        )


def test_each_option_of_a_session_is_known_to_a_source() -> None:
    """No source names an option that is missing, and every field has a source that reads it."""
    known = {name for kind in SOURCES for name in source_of(kind).options}
    of_sources = {
        each.name for each in every_option() if each.owner in (SessionOptions, ValueOptions)
    }
    assert known == {*of_sources, "max-db-load"}
    assert known <= {option.name for option in every_option()}


class Added:
    """An option that is not in the list."""

    group, commands = "Output", ("run",)
    new_size = Option(kinds.SIZE, default=32 << 20)
    """Something new."""


def test_declaring_an_option_is_all_it_takes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Flag, variable, job file and reference page follow from the declaration."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(options, "DECLARING", (*options.DECLARING, Added))
    for cached in (options.shared_options, every_option, options_of):
        cached.cache_clear()
    seen: list[int] = []

    @declared("run", "Run.", "unloader run")
    @source_argument(plans=True)
    def command(argument: SourceArgument, **values: Any) -> None:
        seen.append(values["new_size"])

    monkeypatch.setattr(run_commands, "run", command)
    Path("job.toml").write_text('source = "duckdb:///x.db"\nto = "o"\nnew-size = "2KiB"\n', "utf-8")
    calls: list[tuple[list[str], dict[str, str]]] = [
        (["duckdb:///x.db", "--to", "o"], {}),
        (["duckdb:///x.db", "--to", "o", "--new-size", "3KiB"], {}),
        (["duckdb:///x.db", "--to", "o"], {"UNLOADER_NEW_SIZE": "4KiB"}),
        (["job.toml"], {}),
    ]
    for arguments, variables in calls:
        result = CliRunner().invoke(group, ["run", *arguments], env=variables, obj=Invocation())
        assert result.exit_code == 0, result.output
    assert seen == [32 << 20, 3 << 10, 4 << 10, 2 << 10]
    assert "| `--new-size SIZE` | Something new. | `32MiB` |" in reference()
    for cached in (options.shared_options, every_option, options_of):
        cached.cache_clear()
