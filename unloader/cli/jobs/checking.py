"""A job file checked as a whole: its outputs, its source and its destinations.

`run` reads the options of one output. Here the same is done for each output of a job, in the same
way: by the options of `run` with the job's values as their defaults, variables above them. Nothing
is raised at the first mistake: each is kept with the place that it is about.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
from msgspec import Struct, field
from msgspec.structs import asdict, replace

from unloader import api
from unloader.checking import Checked, CheckedOutput, Problem
from unloader.cli.display import render
from unloader.cli.display.columns import column_table
from unloader.cli.invocation import Invocation
from unloader.cli.jobs.tables import common_place
from unloader.cli.mistakes import usage_error
from unloader.cli.options import rules
from unloader.cli.options.credentials import connect_to
from unloader.cli.options.parameter import JobOption, entry_context, given, settings_of
from unloader.cli.options.request_of import request_of
from unloader.cli.options.source_argument import check_statements, source_of_job
from unloader.cli.options.tables import ONE_OF_SEVERAL, choice_of, table_names
from unloader.errors import UnloaderError, UsageError
from unloader.model import Request, SourceSpec
from unloader.redaction import redact
from unloader.request.job.entries import Entry, Given, JobFile, Mistake, Place, pairs, values_of
from unloader.request.job.grammar import read_job
from unloader.request.name_templates import home_template
from unloader.request.options import options_of
from unloader.selection.choice import AskedTables, TableChoice
from writers.model import TextFormat

_OPTION = re.compile(r"--([a-z][a-z-]*)")

Report = Callable[[Mistake], None]


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
        """Return the tables of an output without mistakes."""
        assert self.request is not None
        selection = replace(self.request.selection, table=None)
        return AskedTables(
            request=replace(self.request, selection=selection),
            choice=self.choice,
            label=self.label,
            group="the job" if self.table is None else self.table.label,
        )


class OutputReader(Struct, kw_only=True):
    """Reads all outputs of a job."""

    job: JobFile
    url: str
    """Of the source; empty where it is not known."""
    passwords: Mapping[str, Any]
    """Options on the password that the command line of `check` has."""
    around: click.Context
    """The call of `run` without arguments, which has the variables."""
    report: Report
    wrong: frozenset[str] = frozenset()
    """Keys with a mistake, which are left out of the job."""
    asked: bool = False
    """The password was asked for."""
    told: set[str] = field(default_factory=set)
    """Mistakes that were reported."""

    def outputs(self) -> tuple[JobOutput, ...]:
        """Return the outputs in the order of the file, those with mistakes among them."""
        return tuple(self._output(table, route) for table, route in pairs(self.job))

    def _output(self, table: Entry | None, route: Entry | None) -> JobOutput:
        values = values_of(self.job, table, route)
        bare = JobOutput(table=table, route=route, values=values)
        context = self._context(values)
        broken = list(self._broken(context))
        for error in broken:
            self._tell(bare.mistake(error))
        given = context.params
        tables = table_names(given) or given["schema"] or given["tables_from"]
        if not self.url or bool(tables) == (given["query"] is not None):
            return bare  # The tables or the query are not clear.
        source = self._source(context, bare)
        if source is None:
            return bare
        try:
            check_statements(values)
            settings = settings_of(context, source.kind)
            request = request_of(context.params, source, settings)
            return replace(bare, request=request, choice=choice_of(context.params))
        except UnloaderError as error:
            if not broken:
                self._tell(bare.mistake(error))
            return bare

    def _broken(self, context: click.Context) -> Iterator[UsageError]:
        """Yield the rules that an output breaks, without consequences of an earlier mistake."""
        if not context.params["to"] and "to" not in self.wrong:
            yield UsageError("the output has no destination", "set the key 'to'")
        for error in rules.broken(context.params, given(context)):
            if not (
                error.message.startswith("no table or query") and self.wrong & {"table", "query"}
            ):
                yield error

    def _source(self, context: click.Context, output: JobOutput) -> SourceSpec | None:
        try:
            source = connect_to(self.url, context.params, given(context))
        except UnloaderError as error:
            mistake = output.mistake(error)
            if not mistake.key and self.job.source is not None:
                mistake = Mistake(error=error, place=self.job.source.place, key="source")
            self._tell(mistake)
            return None
        self.asked = self.asked or bool(context.params["password_prompt"])
        return source

    def _tell(self, mistake: Mistake) -> None:
        """Report a mistake; a mistake of all outputs of a table is reported once."""
        told = f"{mistake.place}: {mistake.key}: {mistake.error.message}"
        if told not in self.told:
            self.told.add(told)
            self.report(mistake)

    def _context(self, values: Mapping[str, Given]) -> click.Context:
        """Return the call of `run` that an output is."""
        known = Invocation(job_file=self.job.path, job_values=values)
        context = entry_context(self.around, known)
        # Where the password is found: this command line comes first.
        context.params.update(
            (key, value) for key, value in self.passwords.items() if value not in (None, False)
        )
        if self.asked:
            context.params["password_prompt"] = False
        context.params[ONE_OF_SEVERAL] = len(self.job.tables) > 1
        return context


_KEYS = {"table": "table", "where": "where", "to": "to", "source": "source", "run": ""}
"""The key of a job file that a problem is about."""


class JobCheck(Struct, frozen=True, kw_only=True):
    """The result of a check."""

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
        passwords: Options on the password of the source.

    Raises:
        ConfigError: The file cannot be read or is not TOML.
    """
    mistakes: list[Mistake] = []
    job = read_job(Path(path), options_of("run"), mistakes.append)
    without: list[click.Parameter] = [
        JobOption(replace(option, required=False)) for option in options_of("run")
    ]
    try:
        around = click.Command("run", params=without).make_context("run", [], obj=Invocation())
    except click.UsageError as error:
        # A variable is wrong, for each output.
        wrong = Mistake(error=usage_error(error), place=Place(path=path))
        return JobCheck(path=path, mistakes=(*mistakes, wrong), outputs=())
    reader = OutputReader(
        job=job,
        around=around,
        url=_url(job, mistakes),
        passwords=passwords,
        report=mistakes.append,
        wrong=frozenset(each.key for each in mistakes),
    )
    outputs = reader.outputs()
    ready = [each for each in outputs if each.request is not None]
    checked = Checked(outputs=(), problems=())
    if ready:
        entries = tuple(each.asked() for each in ready)
        # Of a table with several routes, the first has the directory of the run.
        firsts = tuple({each.group: each for each in reversed(entries)}.values())
        is_single = len(firsts) == 1 and firsts[0].is_of_one
        home = "" if is_single else home_template(common_place(job, firsts))
        checked = api.check(entries, home=home)
    mistakes += (_mistake(problem, job, ready) for problem in checked.problems)
    known: list[tuple[JobOutput, CheckedOutput | None]] = []
    for output in outputs:
        tables = [each for each in checked.outputs if ready[each.entry] is output]
        known += ((output, each) for each in tables or (None,))
    return JobCheck(
        path=path,
        mistakes=tuple(mistakes),
        outputs=tuple(known),
        server_version=checked.server_version,
        notices=checked.notices,
    )


def _url(job: JobFile, mistakes: list[Mistake]) -> str:
    """Return the source's URL; empty where the job does not name one."""
    try:
        return source_of_job(job)
    except UnloaderError as error:
        place = Place(path=job.path) if job.source is None else job.source.place
        # An unset variable in it was reported before.
        if not any(each.key == "source" for each in mistakes):
            mistakes.append(Mistake(error=error, place=place, key="source"))
        return ""


def _mistake(problem: Problem, job: JobFile, ready: list[JobOutput]) -> Mistake:
    """Return a problem with the place in the job file that it is about."""
    key = _KEYS[problem.about]
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
    """Return the JSON document of a check."""
    return {
        "job": check.path,
        "ok": not check.mistakes,
        "exit_code": check.exit_code,
        "server_version": check.server_version,
        "notices": list(check.notices),
        "problems": [_problem(each) for each in check.mistakes],
        "outputs": [_output(*each) for each in check.outputs],
    }


def text(check: JobCheck) -> str:
    """Return what a person reads: the outputs, then every problem, then their number."""
    parts = []
    known = [(output, found) for output, found in check.outputs if found is not None]
    if known:
        parts.append(_outputs(known))
    if 0 < len(known) <= MOST_COLUMNS:
        parts += [_columns(output, found) for output, found in known if found.columns]
    notices = [f"notice: {each}" for each in check.notices]
    notices += [
        f"notice: {render.name(found.table)}: {each}"
        for _, found in known
        for each in found.notices
    ]
    problems = [_sentence(each) for each in check.mistakes]
    parts += ["\n".join(lines) for lines in (notices, problems) if lines]
    return "\n\n".join((*parts, _summary(check)))


def _summary(check: JobCheck) -> str:
    count = len(check.mistakes)
    if not count:
        outputs = len(check.outputs)
        return f"no problem found in {check.path}: {outputs} output{'s' if outputs > 1 else ''}"
    return f"{count} problem{'s' if count > 1 else ''} found in {check.path}"


def _sentence(mistake: Mistake) -> str:
    error = mistake.error
    where = str(mistake.place)
    if mistake.entry:
        where += f": {mistake.entry}"
    shown = str(error) if str(mistake.place) in error.message else f"{where}: {error}"
    return "problem: " + render.shortened(render.one_line(redact(shown)))


def _outputs(known: list[tuple[JobOutput, CheckedOutput]]) -> str:
    return render.table(
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


def _columns(output: JobOutput, found: CheckedOutput) -> str:
    is_text = output.request is not None and isinstance(output.request.output.format, TextFormat)
    head = f"column of {render.name(found.table)}"
    return column_table(found.columns, is_text=is_text, head=head)


def _problem(mistake: Mistake) -> dict[str, Any]:
    error = mistake.error
    return {
        "file": mistake.place.path,
        "line": mistake.place.line,
        "entry": mistake.entry or None,
        "key": mistake.key or None,
        "kind": type(error).__name__,
        "message": redact(error.message),
        "hint": redact(error.hint),
        "exit_code": error.exit_code,
    }


def _output(output: JobOutput, found: CheckedOutput | None) -> dict[str, Any]:
    columns = () if found is None else map(asdict, found.columns)
    return {
        "entry": output.label or None,
        "table": None if found is None else found.table,
        "to": [] if found is None else list(found.places),
        "rows": None if found is None else found.rows,
        "bytes": None if found is None else found.bytes,
        "units": None if found is None else found.units,
        "columns": [
            {key: value for key, value in each.items() if key != "expression"} for each in columns
        ],
        "notices": [] if found is None else list(found.notices),
    }
