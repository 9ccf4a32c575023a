"""What is wrong between the entries of a job file, whatever each of them says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from unloader.errors import UsageError
from unloader.request.job.layers import SUBJECT
from unloader.request.job.model import Entry, JobFile, Mistake, Place


def mistakes_between(job: JobFile) -> Iterator[Mistake]:
    """Yield what is wrong with the names of routes, and with who says what is unloaded."""
    yield from _names(job.routes)
    for table in job.tables:
        yield from _names(table.routes)
        if not any(given.key in (*SUBJECT, "schema") for given in table.values):
            yield _mistake(table.place, "it names neither a table nor a query", entry=table.label)
    for given in job.values if job.tables else ():
        if given.key in SUBJECT:
            text = f"the key {given.key!r} does not apply beside [[table]], which names the tables"
            yield _mistake(given.place, text, key=given.key)


def _names(routes: Sequence[Entry]) -> Iterator[Mistake]:
    """Yield each route that has the name of another one beside it."""
    seen: set[str] = set()
    for each in routes:
        if each.name in seen:
            text = "another route has the same name"
            yield _mistake(each.place, text, key="name", entry=each.label)
        seen.update(filter(None, (each.name,)))


def _mistake(place: Place, text: str, *, key: str = "", entry: str = "") -> Mistake:
    hint = (
        "give each its own name" if key == "name" else "write table or query below each [[table]]"
    )
    where = f"{place}: {entry}" if entry else str(place)
    return Mistake(error=UsageError(f"{where}: {text}", hint), place=place, key=key, entry=entry)
