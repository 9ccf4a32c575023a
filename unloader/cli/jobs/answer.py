"""What `check` has found, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from unloader.cli.display import render
from unloader.cli.display.columns import column_table
from unloader.redaction import redact
from writers.model import TextFormat

if TYPE_CHECKING:
    from unloader.checking import CheckedOutput
    from unloader.cli.jobs.checking import JobCheck
    from unloader.cli.jobs.outputs import JobOutput
    from unloader.request.job.entries import Mistake

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
    return {
        "entry": output.label or None,
        "table": None if found is None else found.table,
        "to": [] if found is None else list(found.places),
        "rows": None if found is None else found.rows,
        "bytes": None if found is None else found.bytes,
        "units": None if found is None else found.units,
        "columns": [] if found is None else list(_json_columns(found)),
        "notices": [] if found is None else list(found.notices),
    }


def _json_columns(found: CheckedOutput) -> Iterator[dict[str, Any]]:
    for each in found.columns:
        yield {
            "name": each.name,
            "source_type": each.source_type,
            "output_type": each.output_type,
            "nullable": each.nullable,
            "lossless": each.lossless,
            "note": each.note,
        }
