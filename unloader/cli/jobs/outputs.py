"""The outputs of a job file, each as the command line would understand it.

`run` reads the options of one output; here the same is done for each output of a job, in the same
way: by the options of `run` with the job's values as their defaults, variables above them. Nothing
is raised at the first mistake: each is kept with the place that it is about.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import click
from msgspec import Struct, field
from msgspec.structs import replace

from unloader.cli.invocation import Invocation
from unloader.cli.mistakes import usage_error
from unloader.cli.options import rules
from unloader.cli.options.credentials import connect_to
from unloader.cli.options.parameter import JobOption, given, settings_of
from unloader.cli.options.request_of import request_of
from unloader.cli.options.source_argument import check_statements, default_map
from unloader.cli.options.tables import ONE_OF_SEVERAL, choice_of, table_names
from unloader.errors import UnloaderError, UsageError
from unloader.model import Request, SourceSpec
from unloader.request.job.entries import Entry, Given, JobFile, Mistake, Place, pairs, values_of
from unloader.request.option import of_command
from unloader.request.options import every_option
from unloader.selection.choice import AskedTables, TableChoice

_OPTION = re.compile(r"--([a-z][a-z-]*)")

Report = Callable[[Mistake], None]


class JobOutput(Struct, frozen=True, kw_only=True):
    """One table with one route."""

    table: Entry | None
    route: Entry | None
    values: Mapping[str, Given]
    request: Request | None = None
    """None where a mistake stands in the way."""
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
        place = found.place if found else entry.place if entry else Place(path=self._path)
        return Mistake(
            error=error,
            place=place,
            key=found.key.replace("_", "-") if found else "",
            entry=self.label,
        )

    @property
    def _path(self) -> str:
        return next((given.place.path for given in self.values.values()), "")

    def asked(self) -> AskedTables:
        """Return what is asked for, of an output without mistakes."""
        assert self.request is not None
        selection = replace(self.request.selection, table=None)
        return AskedTables(
            request=replace(self.request, selection=selection),
            choice=self.choice,
            label=self.label,
            group="the job" if self.table is None else self.table.label,
        )


@cache
def _command(name: str) -> click.Command:
    """Return a command with the options of `run` or `plan`, none of them required."""
    options = of_command(every_option(), name)
    return click.Command(
        name,
        params=[JobOption(replace(option, required=False)) for option in options],
        # Of a command line the source is left over.
        context_settings={"allow_extra_args": True},
    )


class EntryCalls:
    """The calls of a command that the entries of a job file are.

    There may be hundreds of entries, and there are more than a hundred options: what the command
    line and the environment say, and what nobody says, is read once. Of an entry only its own keys
    are.
    """

    def __init__(self, command: str, arguments: Sequence[str]) -> None:
        """Read nothing yet.

        Args:
            command: `run` or `plan`.
            arguments: The command line, which overrides the entries.
        """
        self._command = _command(command)
        self._arguments = tuple(arguments)
        self._bare: click.Context | None = None
        self._options: Mapping[str, Any] = {}

    def context(self, known: Invocation) -> click.Context:
        """Return the call that an entry is.

        Args:
            known: Has what holds for the entry.

        Raises:
            click.UsageError: A value means nothing.
        """
        made, values = self._command, default_map(known.job_values)
        bare = self._bare or self._read(known)
        inner = click.Context(made, info_name=made.name, obj=known, default_map=values)
        inner.params.update(bare.params)
        for name in bare.params:
            place = bare.get_parameter_source(name)
            if place is not None:
                inner.set_parameter_source(name, place)
        for key, value in bare.meta.items():
            inner.meta[key] = dict(value) if isinstance(value, dict) else value
        with inner.scope(cleanup=False):
            for option in made.params:
                if option.name in values:
                    inner.params.pop(option.name)
                    option.handle_parse_result(inner, self._options, [])
        return inner

    def _read(self, known: Invocation) -> click.Context:
        """Read what no entry says."""
        made, arguments = self._command, list(self._arguments)
        bare = made.make_context(made.name, list(arguments), obj=replace(known, job_values={}))
        self._options = made.make_parser(bare).parse_args(arguments)[0]
        self._bare = bare
        return bare


class OutputReader(Struct, kw_only=True):
    """Reads all outputs of a job."""

    job: JobFile
    url: str
    """Of the source; empty where it is not known."""
    passwords: Mapping[str, Any]
    """Options on the password that the command line of `check` has."""
    report: Report
    wrong: frozenset[str] = frozenset()
    """Keys with a mistake, which are left out of the job."""
    asked: bool = False
    """The password was asked for."""
    told: set[str] = field(default_factory=set)
    """Mistakes that were reported."""
    calls: EntryCalls = field(default_factory=lambda: EntryCalls("run", ()))

    def outputs(self) -> tuple[JobOutput, ...]:
        """Return the outputs in the order of the file, those with mistakes among them."""
        return tuple(self._output(table, route) for table, route in pairs(self.job))

    def _output(self, table: Entry | None, route: Entry | None) -> JobOutput:
        values = values_of(self.job, table, route)
        bare = JobOutput(table=table, route=route, values=values)
        context = self._context(values)
        if context is None:
            return bare
        broken = list(self._broken(context))
        for error in broken:
            self._tell(bare.mistake(error))
        if not self.url or not self._has_subject(context):
            return bare
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

    def _has_subject(self, context: click.Context) -> bool:
        """Return whether it is said what is unloaded, in one way."""
        values = context.params
        tables = table_names(values) or values["schema"] or values["tables_from"]
        return bool(tables) != (values["query"] is not None)

    def _broken(self, context: click.Context) -> Iterator[UsageError]:
        """Yield the rules that an output breaks, but for what follows from a mistake before."""
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
        """Report a mistake; one that all outputs of a table have is told once."""
        told = f"{mistake.place}: {mistake.key}: {mistake.error.message}"
        if told not in self.told:
            self.told.add(told)
            self.report(mistake)

    def _context(self, values: Mapping[str, Given]) -> click.Context | None:
        """Return the call of `run` that an output is; None if a variable is wrong."""
        known = Invocation(job_file=self.job.path, job_values=values)
        try:
            context = self.calls.context(known)
        except click.UsageError as error:
            # What the file says has been looked at by now. Each output has the same variables.
            self._tell(Mistake(error=usage_error(error), place=Place(path=self.job.path)))
            return None
        # Where the password is found: what this command line says comes first.
        context.params.update(
            (key, value) for key, value in self.passwords.items() if value not in (None, False)
        )
        if self.asked:
            context.params["password_prompt"] = False
        context.params[ONE_OF_SEVERAL] = len(self.job.tables) > 1
        return context
