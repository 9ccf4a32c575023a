"""A job file checked as a whole: its content, its source and its destinations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import asdict

from unloader import api
from unloader.cli.display import render
from unloader.cli.display.columns import column_table
from unloader.cli.jobs.outputs import JobOutput, OutputReader
from unloader.cli.jobs.tables import common_place
from unloader.cli.options.source_argument import source_of_job
from unloader.errors import UnloaderError
from unloader.redaction import redact
from unloader.request.directory_names import has_fields, home_template
from unloader.request.job.entries import JobFile, Mistake, Place
from unloader.request.job.grammar import read_job
from unloader.request.option import of_command
from unloader.request.options import every_option
from writers.model import TextFormat

if TYPE_CHECKING:
    from unloader.checking import Checked, CheckedOutput, Problem

_KEYS = {"table": "table", "where": "where", "to": "to", "source": "source", "run": ""}
"""The key of a job file that a problem is about."""


class JobCheck(Struct, frozen=True, kw_only=True):
    """What is known of a job."""

    path: str
    mistakes: tuple[Mistake, ...]
    outputs: tuple[tuple[JobOutput, CheckedOutput | None], ...]
    server_version: str = ""
    notices: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """The exit status of a run of it, as far as is known: that of the first mistake."""
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
    job = read_job(Path(path), of_command(every_option(), "run"), mistakes.append)
    reader = OutputReader(
        job=job,
        url=_url(job, mistakes),
        passwords=passwords,
        report=mistakes.append,
        wrong=frozenset(each.key for each in mistakes),
    )
    outputs = reader.outputs()
    ready = [each for each in outputs if each.request is not None]
    checked = _checked(job, ready)
    if checked is not None:
        mistakes += (_mistake(problem, job, ready) for problem in checked.problems)
    return JobCheck(
        path=path,
        mistakes=tuple(mistakes),
        outputs=tuple(_known(outputs, ready, checked)),
        server_version="" if checked is None else checked.server_version,
        notices=() if checked is None else checked.notices,
    )


def _known(
    outputs: Sequence[JobOutput], ready: list[JobOutput], checked: Checked | None
) -> Iterator[tuple[JobOutput, CheckedOutput | None]]:
    """Yield each output with each of its tables; with None where none is known."""
    for output in outputs:
        found = [
            each
            for each in (() if checked is None else checked.outputs)
            if ready[each.entry] is output
        ]
        for each in found or (None,):
            yield output, each


def _url(job: JobFile, mistakes: list[Mistake]) -> str:
    """Return the source's URL; empty where the job does not name one."""
    try:
        return source_of_job(job)
    except UnloaderError as error:
        place = Place(path=job.path) if job.source is None else job.source.place
        # That a variable in it is not set is said already.
        if not any(each.key == "source" for each in mistakes):
            mistakes.append(Mistake(error=error, place=place, key="source"))
        return ""


def _checked(job: JobFile, ready: list[JobOutput]) -> Checked | None:
    if not ready:
        return None
    entries = tuple(each.asked() for each in ready)
    home = home_template(common_place(job, entries)) if len(job.tables) > 1 else ""
    return api.check(entries, home="" if has_fields(home) else home)


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
