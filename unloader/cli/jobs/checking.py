"""A job file checked as a whole: what it says, and what its source and its destinations are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from unloader import api
from unloader.cli.jobs.outputs import JobOutput, OutputReader
from unloader.cli.jobs.tables import common_place
from unloader.cli.options.source_argument import source_of_job
from unloader.errors import UnloaderError
from unloader.request.directory_names import has_fields, home_template
from unloader.request.job.entries import JobFile, Mistake, Place
from unloader.request.job.grammar import read_job
from unloader.request.option import of_command
from unloader.request.options import every_option

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
        return ready[0].mistake(problem.error) if key else _of_run(problem, job)
    output = ready[problem.entry]
    subject = "query" if key == "table" and "query" in output.values else key
    mentions = f"--{subject}" in problem.error.message or "--" not in problem.error.message
    return output.mistake(problem.error, subject if mentions else "")


def _of_run(problem: Problem, job: JobFile) -> Mistake:
    return Mistake(error=problem.error, place=Place(path=job.path))
