"""Commands on job files: write a first one with init, and check one."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from msgspec import Struct, to_builtins
from msgspec.structs import asdict, replace

from unloader import api
from unloader.checking import Checked, CheckedOutput
from unloader.checking import check as check_entries
from unloader.cli.display import render
from unloader.cli.display.summary import column_table
from unloader.cli.mistakes import usage_error
from unloader.cli.options import rules
from unloader.cli.options.command import JobOption, declared, entry_context, given, settings_of
from unloader.cli.options.request_of import check_statements, common_place, connect_to, request_of
from unloader.cli.options.source_argument import source_of_job
from unloader.cli.streams import Invocation
from unloader.cli.watching import display_for
from unloader.errors import ConfigError, OutputFailed, UnloaderError, UsageError
from unloader.model import Request, TableSummary
from unloader.nouns import counted
from unloader.redaction import redact
from unloader.request.job_files import Entry, Given, JobFile, Mistake, Place, read_job
from unloader.request.name_templates import directory_name, home_template
from unloader.request.options import options_of
from unloader.selection.asked import AskedTables
from unloader.selection.choice import TableChoice
from writers.model import TextFormat

_KEPT = ("password_file", "password_keyring", "password_credential")
"""Options that say where a password is found, and no password."""


@declared(
    "init",
    "Write a job file for the tables of a schema.",
    """
    unloader init duckdb:///data/sales.db --output sales.toml
    unloader init postgresql://etl@db01/sales --schema public --output job.toml
    unloader init oracle://etl@db01:1521/SALES --schema SALES --output job.toml
    """,
)
@click.argument("source")
@click.pass_context
def init(context: click.Context, /, source: str, **values: Any) -> None:
    """Write a job file for the tables of one schema of SOURCE, with comments on what to change.

    The job file names every table, with its estimated rows and its size. Views are commented out.
    It contains no password. Check it with `unloader check FILE`.
    """
    spec = connect_to(source, values, given(context))
    with display_for(values) as display:
        tables = api.schema_tables(spec, values["schema"], display)
    kept = {name.replace("_", "-"): str(values[name]) for name in _KEPT if values[name]}
    text, path = draft(source, kept, tables), values["output"]
    if path == "-":
        path = None
    if path:
        try:
            with open(Path(path), "x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            raise OutputFailed(
                f"{path} exists already", "choose another --output, or remove it"
            ) from None
        except OSError as error:
            raise OutputFailed(
                f"the job file {path} cannot be written: {error.strerror}", "check the path"
            ) from error
    elif not values["json"]:
        if redact(text) != text:
            raise UsageError(
                "a name in the job file looks like a password, and standard output hides passwords",
                "write it to a file: --output FILE",
            )
        render.emit(text)
        return
    summaries = [{"table": typed, **to_builtins(each)} for typed, each in tables.items()]
    many = counted(len(tables), "table or view", "tables and views")
    done = f"{path} names {many}; check it with: unloader check {shlex.quote(path or '')}"
    render.answer(values, {"output": path, "tables": summaries, "job": text}, lambda: done)


@declared(
    "check",
    "Check a job file without reading rows.",
    """
    unloader check nightly.toml
    unloader check nightly.toml --json
    """,
)
@click.argument("job", metavar="JOB.toml")
@click.pass_context
def check(context: click.Context, /, job: str, **values: Any) -> None:
    """Check a job file without reading rows or writing anything.

    It checks keys and their values, and options that contradict each other. It checks the source,
    its tables, the rights on them, the conditions, and the conversion of each column. It checks
    that the destinations can be written, hold no unrelated files and differ from each other. It
    compares the free space with the size of the tables.

    All problems are listed, and not only the first. The exit status is 0 without problems.
    Otherwise it is the status of a run that ends with the first problem.
    """
    if not job.lower().endswith(".toml"):
        raise UsageError(
            "JOB.toml does not end with .toml, and is not shown",
            "name it *.toml; see a table with: unloader describe SOURCE --table T",
        )
    passwords = {name: value for name, value in values.items() if name.startswith("password_")}
    mistakes: list[Mistake] = []
    outputs, server, notices = _check_job(job, passwords, mistakes)
    status = mistakes[0].error.exit_code if mistakes else 0
    if values["json"]:
        document = {
            "job": job,
            "ok": not mistakes,
            "exit_code": status,
            "server_version": server,
            "notices": list(notices),
            "problems": [
                {
                    "file": each.place.path,
                    "line": each.place.line,
                    "entry": each.entry or None,
                    "key": each.key or None,
                    "kind": type(each.error).__name__,
                    "message": redact(each.error.message),
                    "hint": redact(each.error.hint),
                    "exit_code": each.error.exit_code,
                }
                for each in mistakes
            ],
            "outputs": [
                {
                    "entry": output.label or None,
                    "table": found.table or None,
                    "to": list(found.places),
                    **{name: getattr(found, name) for name in ("rows", "bytes", "units")},
                    "columns": [
                        {
                            name: each
                            for name, each in asdict(column).items()
                            if name != "expression"
                        }
                        for column in found.columns
                    ],
                    "notices": list(found.notices),
                }
                for output, known in outputs
                for found in (known or CheckedOutput(entry=0, table=""),)
            ],
        }
        render.emit(render.json_text(document))
    elif not values["quiet"] or mistakes:
        render.emit("\n\n".join(_check_parts(job, outputs, notices, mistakes)))
    context.exit(status)


_OPTION = re.compile(r"--([a-z][a-z-]*)")

MOST_COLUMNS = 3
"""Outputs whose columns are shown; of more, each has one line, and --json has the columns."""


class JobOutput(Struct, kw_only=True):
    """One table with one route."""

    table: Entry | None
    route: Entry | None
    values: Mapping[str, Given]
    request: Request | None = None
    """None if a mistake prevents it."""
    choice: TableChoice | None = None
    """Which tables; None is a query."""

    @property
    def label(self) -> str:
        """The entries that it is made of; empty where the top of the file says all."""
        return ", ".join(each.label for each in (self.table, self.route) if each is not None)

    def mistake(self, error: UnloaderError, key: str = "") -> Mistake:
        """Return an error with the place of the key that it is about, named or mentioned in it."""
        mentioned = (name.replace("-", "_") for name in _OPTION.findall(error.message))
        found = next((self.values[each] for each in (key, *mentioned) if each in self.values), None)
        known = found or self.route or self.table
        if known is None:
            value = next(iter(self.values.values()), None)
            return Mistake(error=error, place=Place(path=value.place.path if value else ""))
        key = found.key.replace("_", "-") if found else ""
        return Mistake(error=error, place=known.place, key=key, entry=self.label)


Outputs = list[tuple[JobOutput, CheckedOutput | None]]


def _check_job(
    path: str, passwords: Mapping[str, Any], mistakes: list[Mistake]
) -> tuple[Outputs, str, Sequence[str]]:
    """Return what can be known of a job without reading rows: outputs, server and notices.

    `run` reads the options of one output. Here the same is done for each output of a job, in the
    same way: by the options of `run` with the values of the job as their defaults, and variables
    above them. Mistakes are collected. Options on the password that the command line of `check`
    has come first. A file that cannot be read or is not TOML is a ConfigError.
    """
    job = read_job(Path(path), options_of("run"), mistakes.append)
    wrong = frozenset(each.key for each in mistakes)
    url = ""
    try:
        url = source_of_job(job)
    except UnloaderError as error:
        place = Place(path=job.path) if job.source is None else job.source.place
        # An unset variable in it was reported before.
        if "source" not in wrong:
            mistakes.append(Mistake(error=error, place=place, key="source"))
    without: list[click.Parameter] = [
        JobOption(replace(option, required=False)) for option in options_of("run")
    ]
    try:
        around = click.Command("run", params=without).make_context("run", [], obj=Invocation())
    except click.UsageError as error:
        # A variable is wrong, for each output.
        mistakes.append(Mistake(error=usage_error(error), place=Place(path=path)))
        return [], "", ()
    outputs: list[JobOutput] = []
    every = [(each, at) for each in job.tables or (None,) for at in job.routes_of(each) or (None,)]
    for table, route in every:
        output = JobOutput(table=table, route=route, values=job.values_of(table, route))
        context = entry_context(around, Invocation(job_file=path, job_values=output.values))
        # Where the password is found: this command line comes first.
        context.params.update((k, v) for k, v in passwords.items() if v not in (None, False))
        context.params[rules.ONE_OF_SEVERAL] = len(job.tables) > 1
        if outputs and url:
            context.params["password_prompt"] = False  # It was asked for already.
        outputs.append(output)
        known = {(each.place, each.key, each.error.message) for each in mistakes}
        # A mistake of all outputs of a table is reported once.
        mistakes += (
            each
            for each in _read(output, context, job, url, wrong)
            if (each.place, each.key, each.error.message) not in known
        )
    ready = [(each, request) for each in outputs if (request := each.request) is not None]
    checked = Checked(outputs=(), problems=())
    if ready:
        entries = tuple(
            AskedTables(
                request=replace(request, selection=replace(request.selection, table=None)),
                choice=each.choice,
                label=each.label,
                group="the job" if each.table is None else each.table.label,
            )
            for each, request in ready
        )
        # Of a table with several routes, the first has the directory of the run.
        firsts = tuple({each.group: each for each in reversed(entries)}.values())
        is_single = len(firsts) == 1 and firsts[0].is_of_one
        home = "" if is_single else home_template(common_place(job, firsts))
        checked = check_entries(entries, home=home)
    for problem in checked.problems:
        # The subjects have the names of keys, except for the run as a whole.
        key, failed = "" if problem.about == "run" else problem.about, problem.error
        if problem.entry is not None:
            output = ready[problem.entry][0]
            subject = "query" if key == "table" and "query" in output.values else key
            mentions = f"--{subject}" in failed.message or "--" not in failed.message
            mistakes.append(output.mistake(failed, subject if mentions else ""))
        elif key == "source" and job.source is not None:
            mistakes.append(Mistake(error=failed, place=job.source.place, key=key))
        else:
            of_job = Mistake(error=failed, place=Place(path=job.path))
            mistakes.append(ready[0][0].mistake(failed) if key else of_job)
    shown: Outputs = []
    for output in outputs:
        tables = [each for each in checked.outputs if ready[each.entry][0] is output]
        shown += ((output, each) for each in tables or (None,))
    return shown, checked.server_version, checked.notices


def _read(
    output: JobOutput, context: click.Context, job: JobFile, url: str, wrong: frozenset[str]
) -> Iterator[Mistake]:
    """Give an output its request; yield its mistakes, without consequences of earlier ones."""
    options, broken = context.params, []
    if not options["to"] and "to" not in wrong:
        broken.append(UsageError("the output has no destination", "set the key 'to'"))
    for error in rules.broken(options, given(context)):
        if not (error.message.startswith("no table or query") and wrong & {"table", "query"}):
            broken.append(error)
    yield from map(output.mistake, broken)
    tables = rules.table_names(options) or options["schema"] or options["tables_from"]
    if not url or bool(tables) == (options["query"] is not None):
        return  # The source, the tables or the query are not clear.
    try:
        source = connect_to(url, options, given(context))
    except UnloaderError as failure:
        mistake = output.mistake(failure)
        if not mistake.key and job.source is not None:
            mistake = Mistake(error=failure, place=job.source.place, key="source")
        yield mistake
        return
    try:
        check_statements(output.values)
        request = request_of(options, source, settings_of(context, source.kind))
        output.choice = rules.choice_of(options)
        output.request = request
    except UnloaderError as failure:
        if not broken:
            yield output.mistake(failure)


def _check_parts(
    job: str, outputs: Outputs, notices: Sequence[str], mistakes: Sequence[Mistake]
) -> Iterator[str]:
    """Yield what a person reads: the outputs, then every problem, then their number."""
    known = [(output, found) for output, found in outputs if found is not None]
    if known:
        yield render.table(
            ("table", "entry", "to", ">columns", ">rows", ">bytes", ">units"),
            (
                (
                    *(render.name(found.table), output.label or render.UNKNOWN),
                    ", ".join(found.places) or render.UNKNOWN,
                    *(len(found.columns) or None, found.rows, render.size(found.bytes)),
                    found.units,
                )
                for output, found in known
            ),
        )
    for output, found in known if len(known) <= MOST_COLUMNS else ():
        if found.columns:
            written = None if output.request is None else output.request.output.format
            head, is_text = f"column of {render.name(found.table)}", isinstance(written, TextFormat)
            yield column_table(found.columns, is_text=is_text, head=head)
    lines = [f"notice: {each}" for each in notices]
    for _, found in known:
        lines += (f"notice: {render.name(found.table)}: {each}" for each in found.notices)
    if lines:
        yield "\n".join(lines)
    problems = []
    for each in mistakes:
        where = f"{each.place}: {each.entry}" if each.entry else str(each.place)
        error = each.error
        shown = str(error) if str(each.place) in error.message else f"{where}: {error}"
        problems.append("problem: " + render.shortened(render.one_line(redact(shown))))
    if problems:
        yield "\n".join(problems)
        yield f"{counted(len(problems), 'problem')} found in {job}"
    else:
        yield f"no problem found in {job}: {counted(len(outputs), 'output')}"


_TOP = """\
# A job file of unloader. Each key is an option of `unloader run`.
#
#   unloader check FILE      check it without reading rows
#   unloader run FILE        unload its tables
#
# Values may use environment variables, "${NAME}" or "${NAME:-default}". List them in a line
# shown-variables = ["NAME"], because their contents are shown and recorded.
# Editors with taplo complete the keys and check the values. They need this line, with the path of
# the file in the docs of unloader:
#   #:schema /path/to/job.schema.json
"""

_SHARED = """\
# Keys that are shared with other files. The keys of this file override them.
# include = ["base.toml"]

# format = "parquet"          # the default is csv
# compression = "zstd"        # the default: none for csv, zstd for parquet
# parallelism = 8             # the default is the number of usable cores
# verify = "full"             # the default is count
"""

_TO = "# A directory for each day, and in it one for each table. {run_id} makes one for each run."


def draft(url: str, settings: Mapping[str, str], tables: Mapping[str, TableSummary]) -> str:
    """Return the text of a job file for the tables of one schema; settings are about the source."""
    # The rows of a view may be rows of other tables.
    views = {
        typed
        for typed, each in tables.items()
        if "view" in each.kind and "materialized" not in each.kind
    }
    if len(views) == len(tables):
        views = set()
    chosen = [each for typed, each in tables.items() if typed not in views]
    rows = sum(each.rows or 0 for each in chosen)
    about = f", about {counted(rows, 'row')}" if rows else ""
    more = f"; {counted(len(views), 'view is', 'views are')} commented out" if views else ""
    lines = [_TOP, f"source = {toml(url)}"]
    lines += [f"{key} = {toml(value)}" for key, value in settings.items()]
    has_schema = all(each.schema for each in tables.values())
    usual = "extract/{date}/{schema}.{table}" if has_schema else "extract/{date}/{table}"
    lines += ["", _TO, f"to = {toml(usual)}", "", _SHARED]
    lines.append(f"# {counted(len(chosen), 'table')}{about}{more}. Estimates of the source.")
    # Two names may give the same directory, since a directory's name cannot hold every character.
    seen: set[str] = set()
    for number, (typed, summary) in enumerate(tables.items(), 1):
        own, place = f"extract/{{date}}/table-{number}", ""
        names = {"schema": summary.schema or "", "table": summary.name}
        with suppress(ConfigError, OutputFailed):
            place = directory_name(usual, {**names, "date": "20260131", "run_id": ""})
        to = "" if place and place not in seen else own
        seen.add(place)
        size = [summary.kind]  # The word of the source.
        if summary.rows is not None:
            size.append(f"about {counted(summary.rows, 'row')}")
        if summary.bytes is not None:
            size.append(render.size(summary.bytes))
        if summary.partitions:
            size.append(counted(summary.partitions, "partition"))
        keys = [f"# {', '.join(size)}", f"table = {toml(typed)}"]
        keys += [f"to = {toml(to)}"] if to else []
        entry = ["", "[[table]]", *keys] if len(tables) > 1 else keys
        lines += [f"# {line}" if line and typed in views else line for line in entry]
    return "\n".join(lines) + "\n"


def toml(value: Any) -> str:
    """Return a value of an option as TOML has it, and so that no variable begins in a text."""
    if isinstance(value, dict):
        pairs = (f"{toml(str(key))} = {toml(each)}" for key, each in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(toml, value))}]"
    plain = value if isinstance(value, (bool, int, float)) else str(value).replace("${", "$${")
    # Texts and numbers are as in JSON, where one control character may stay as it is.
    return json.dumps(plain, ensure_ascii=False).replace("\x7f", "\\u007f")
