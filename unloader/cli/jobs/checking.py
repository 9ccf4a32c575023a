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

from unloader.checking import Checked, CheckedOutput, Problem, check
from unloader.cli.display import render
from unloader.cli.display.columns import column_table
from unloader.cli.invocation import Invocation
from unloader.cli.jobs.tables import common_place
from unloader.cli.mistakes import usage_error
from unloader.cli.options import rules
from unloader.cli.options.parameter import JobOption, entry_context, given, settings_of
from unloader.cli.options.request_of import connect_to, request_of
from unloader.cli.options.rules import ONE_OF_SEVERAL, choice_of, table_names
from unloader.cli.options.source_argument import check_statements, source_of_job
from unloader.errors import UnloaderError, UsageError
from unloader.model import Request
from unloader.nouns import counted
from unloader.redaction import redact
from unloader.request.job.documents import Mistake, Place
from unloader.request.job.grammar import Entry, Given, JobFile, read_job
from unloader.request.name_templates import home_template
from unloader.request.options import options_of
from unloader.selection.choice import AskedTables, TableChoice
from writers.model import TextFormat

_OPTION = re.compile(r"--([a-z][a-z-]*)")


class JobOutput(Struct, frozen=True, kw_only=True):
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
        keys = (*([key] if key else []), *mentioned)
        found = next((self.values[each] for each in keys if each in self.values), None)
        entry = self.route or self.table
        path = next((each.place.path for each in self.values.values()), "")
        place = found.place if found else entry.place if entry else Place(path=path)
        return Mistake(
            error=error,
            place=place,
            key=found.key.replace("_", "-") if found else "",
            entry=self.label,
        )

    def asked(self) -> AskedTables:
        assert self.request is not None
        selection = replace(self.request.selection, table=None)
        return AskedTables(
            request=replace(self.request, selection=selection),
            choice=self.choice,
            label=self.label,
            group="the job" if self.table is None else self.table.label,
        )


class JobCheck(Struct, frozen=True, kw_only=True):
    path: str
    mistakes: tuple[Mistake, ...]
    outputs: tuple[tuple[JobOutput, CheckedOutput | None], ...]
    server_version: str = ""
    notices: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """The exit status of a run of it, as far as is known: the status of the first mistake."""
        return self.mistakes[0].error.exit_code if self.mistakes else 0


def check_job(path: str, passwords: Mapping[str, Any]) -> JobCheck:
    """Return all that can be known of a job file without reading rows.

    Args:
        path: The file.
        passwords: Options on the password that the command line of `check` has.

    Raises:
        ConfigError: The file cannot be read or is not TOML.
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
        return JobCheck(path=path, mistakes=tuple(mistakes), outputs=())
    outputs, asked = [], False
    every = [(each, at) for each in job.tables or (None,) for at in job.routes_of(each) or (None,)]
    for table, route in every:
        values = job.values_of(table, route)
        context = entry_context(around, Invocation(job_file=path, job_values=values))
        # Where the password is found: this command line comes first.
        context.params.update((k, v) for k, v in passwords.items() if v not in (None, False))
        context.params[ONE_OF_SEVERAL] = len(job.tables) > 1
        prompts = context.params["password_prompt"]
        context.params["password_prompt"] = prompts and not asked
        output = JobOutput(table=table, route=route, values=values)
        found = list(_read(output, context, job, url, wrong))
        asked = asked or (prompts and bool(url))
        outputs.append(next((each for each in found if isinstance(each, JobOutput)), output))
        known = {(each.place, each.key, each.error.message) for each in mistakes}
        mistakes += (
            each
            for each in found
            # A mistake of all outputs of a table is reported once.
            if isinstance(each, Mistake) and (each.place, each.key, each.error.message) not in known
        )
    ready = [each for each in outputs if each.request is not None]
    checked = Checked(outputs=(), problems=())
    if ready:
        entries = tuple(each.asked() for each in ready)
        # Of a table with several routes, the first has the directory of the run.
        firsts = tuple({each.group: each for each in reversed(entries)}.values())
        is_single = len(firsts) == 1 and firsts[0].is_of_one
        home = "" if is_single else home_template(common_place(job, firsts))
        checked = check(entries, home=home)
    mistakes += (_mistake(problem, job, ready) for problem in checked.problems)
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
) -> Iterator[Mistake | JobOutput]:
    """Yield the mistakes of an output, without consequences of earlier ones; then its request."""
    options, is_broken = context.params, False
    if not options["to"] and "to" not in wrong:
        is_broken = True
        yield output.mistake(UsageError("the output has no destination", "set the key 'to'"))
    for error in rules.broken(options, given(context)):
        if not (error.message.startswith("no table or query") and wrong & {"table", "query"}):
            is_broken = True
            yield output.mistake(error)
    tables = table_names(options) or options["schema"] or options["tables_from"]
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
        yield replace(output, request=request, choice=choice_of(options))
    except UnloaderError as failure:
        if not is_broken:
            yield output.mistake(failure)


def _mistake(problem: Problem, job: JobFile, ready: list[JobOutput]) -> Mistake:
    """Return a problem with the place in the job file that it is about."""
    # The subjects have the names of keys, except for the run as a whole.
    key = "" if problem.about == "run" else problem.about
    if problem.entry is None:
        source = job.source
        if key == "source" and source is not None:
            return Mistake(error=problem.error, place=source.place, key=key)
        if key:
            return ready[0].mistake(problem.error)
        return Mistake(error=problem.error, place=Place(path=job.path))
    output = ready[problem.entry]
    subject = "query" if key == "table" and "query" in output.values else key
    mentions = f"--{subject}" in problem.error.message or "--" not in problem.error.message
    return output.mistake(problem.error, subject if mentions else "")


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
    parts = []
    if known:
        parts.append(
            render.table(
                ("table", "entry", "to", ">columns", ">rows", ">bytes", ">units"),
                (
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
                ),
            )
        )
    for output, found in known if len(known) <= MOST_COLUMNS else ():
        if found.columns:
            written = None if output.request is None else output.request.output.format
            head = f"column of {render.name(found.table)}"
            is_text = isinstance(written, TextFormat)
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
