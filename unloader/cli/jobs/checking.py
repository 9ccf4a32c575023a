"""A job file checked as a whole: its outputs, its source and its destinations.

`run` reads the options of one output. Here the same is done for each output of a job, in the same
way: by the options of `run` with the job's values as their defaults, variables above them. Nothing
is raised at the first mistake: each is kept with the place that it is about.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
from msgspec import Struct
from msgspec.structs import asdict, replace

from unloader.checking import Checked, CheckedOutput, check
from unloader.cli.display import render
from unloader.cli.display.columns import column_table
from unloader.cli.invocation import Invocation
from unloader.cli.jobs.tables import common_place
from unloader.cli.mistakes import usage_error
from unloader.cli.options import rules
from unloader.cli.options.parameter import JobOption, entry_context, given, settings_of
from unloader.cli.options.request_of import connect_to, request_of
from unloader.cli.options.source_argument import check_statements, source_of_job
from unloader.errors import UnloaderError, UsageError
from unloader.model import Request
from unloader.nouns import counted
from unloader.redaction import redact
from unloader.request.job_files import Entry, Given, JobFile, Mistake, Place, read_job
from unloader.request.name_templates import home_template
from unloader.request.options import options_of
from unloader.selection.choice import AskedTables, TableChoice
from writers.model import TextFormat

_OPTION = re.compile(r"--([a-z][a-z-]*)")


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
        known = found or self.route or self.table or next(iter(self.values.values()), None)
        place = known.place if known else Place(path="")
        if not (found or self.route or self.table):
            place = Place(path=place.path)
        key = found.key.replace("_", "-") if found else ""
        return Mistake(error=error, place=place, key=key, entry=self.label)


class JobCheck(Struct, frozen=True, kw_only=True):
    path: str
    mistakes: tuple[Mistake, ...]
    outputs: tuple[tuple[JobOutput, CheckedOutput | None], ...] = ()
    server_version: str = ""
    notices: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """The exit status of a run of it, as far as is known: the status of the first mistake."""
        return self.mistakes[0].error.exit_code if self.mistakes else 0


def check_job(path: str, passwords: Mapping[str, Any]) -> JobCheck:
    """Return all that can be known of a job file without reading rows.

    Options on the password that the command line of `check` has count first. A file that cannot be
    read or is not TOML is a ConfigError.
    """
    mistakes: list[Mistake] = []
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
        return JobCheck(path=path, mistakes=tuple(mistakes))
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
    ready = [each for each in outputs if each.request is not None]
    checked = Checked(outputs=(), problems=())
    if ready:
        entries = tuple(
            AskedTables(
                request=replace(request, selection=replace(request.selection, table=None)),
                choice=each.choice,
                label=each.label,
                group="the job" if each.table is None else each.table.label,
            )
            for each in ready
            if (request := each.request) is not None
        )
        # Of a table with several routes, the first has the directory of the run.
        firsts = tuple({each.group: each for each in reversed(entries)}.values())
        is_single = len(firsts) == 1 and firsts[0].is_of_one
        home = "" if is_single else home_template(common_place(job, firsts))
        checked = check(entries, home=home)
    for problem in checked.problems:
        # The subjects have the names of keys, except for the run as a whole.
        key, failed = "" if problem.about == "run" else problem.about, problem.error
        if problem.entry is not None:
            output = ready[problem.entry]
            subject = "query" if key == "table" and "query" in output.values else key
            mentions = f"--{subject}" in failed.message or "--" not in failed.message
            mistakes.append(output.mistake(failed, subject if mentions else ""))
        elif key == "source" and job.source is not None:
            mistakes.append(Mistake(error=failed, place=job.source.place, key=key))
        else:
            of_job = Mistake(error=failed, place=Place(path=job.path))
            mistakes.append(ready[0].mistake(failed) if key else of_job)
    shown: list[tuple[JobOutput, CheckedOutput | None]] = []
    for output in outputs:
        tables = [each for each in checked.outputs if ready[each.entry] is output]
        shown += ((output, each) for each in tables or (None,))
    return JobCheck(
        path=path,
        mistakes=tuple(mistakes),
        outputs=tuple(shown),
        server_version=checked.server_version,
        notices=checked.notices,
    )


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


MOST_COLUMNS = 3
"""Outputs whose columns are shown; of more, each has one line, and --json has the columns."""


def document(check: JobCheck) -> dict[str, Any]:
    return {
        "job": check.path,
        "ok": not check.mistakes,
        "exit_code": check.exit_code,
        "server_version": check.server_version,
        "notices": list(check.notices),
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
            for each in check.mistakes
        ],
        "outputs": [
            {
                "entry": output.label or None,
                "table": found.table or None,
                "to": list(found.places),
                "rows": found.rows,
                "bytes": found.bytes,
                "units": found.units,
                "columns": [
                    {name: value for name, value in asdict(each).items() if name != "expression"}
                    for each in found.columns
                ],
                "notices": list(found.notices),
            }
            for output, known in check.outputs
            for found in (known or CheckedOutput(entry=0, table=""),)
        ],
    }


def text(check: JobCheck) -> str:
    """Return what a person reads: the outputs, then every problem, then their number."""
    known = [(output, found) for output, found in check.outputs if found is not None]
    rows = [
        (
            render.name(found.table),
            output.label or render.UNKNOWN,
            render.visible(", ".join(found.places)) or render.UNKNOWN,
            render.count(len(found.columns) or None),
            render.count(found.rows),
            render.size(found.bytes),
            render.count(found.units),
        )
        for output, found in known
    ]
    heads = ("table", "entry", "to", ">columns", ">rows", ">bytes", ">units")
    parts = [render.table(heads, rows)] if rows else []
    for output, found in known if len(known) <= MOST_COLUMNS else ():
        if found.columns:
            written = None if output.request is None else output.request.output.format
            head, is_text = f"column of {render.name(found.table)}", isinstance(written, TextFormat)
            parts.append(column_table(found.columns, is_text=is_text, head=head))
    notices = [f"notice: {each}" for each in check.notices]
    notices += [
        f"notice: {render.name(found.table)}: {each}"
        for _, found in known
        for each in found.notices
    ]
    problems = []
    for each in check.mistakes:
        where = f"{each.place}: {each.entry}" if each.entry else str(each.place)
        error = each.error
        shown = str(error) if str(each.place) in error.message else f"{where}: {error}"
        problems.append("problem: " + render.shortened(render.one_line(redact(shown))))
    parts += ["\n".join(lines) for lines in (notices, problems) if lines]
    if problems:
        parts.append(f"{counted(len(problems), 'problem')} found in {check.path}")
    else:
        outputs = counted(len(check.outputs), "output")
        parts.append(f"no problem found in {check.path}: {outputs}")
    return "\n\n".join(parts)
