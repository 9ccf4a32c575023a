"""One output of several, as it would be if it were the only one of the run.

Whoever writes, verifies or describes an output needs nothing else: its columns are the scan's, and
its request asks for it alone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from unloader.model import Extract
from unloader.resolve.guarded_columns import marked
from unloader.resolve.outputs.columns import projection_of_output
from unloader.storage.place_names import destination_kind
from writers.model import TextFormat

if TYPE_CHECKING:
    from unloader.resolve.resolved import ResolvedRun


_FILE_NAME = re.compile(r"\.(csv|tsv|txt|parquet)(\.(gz|zst|lz4))?$", re.IGNORECASE)


def of_output(run: ResolvedRun, number: int) -> ResolvedRun:
    """Return the run of one output; a run without routes is that of its output already."""
    if run.request.routes is None:
        return run
    output = run.outputs[number]
    extract = extract_of_output(run.extract, number)
    return replace(
        run,
        request=run.request.of_outputs()[number],
        extract=replace(extract, projection=marked(extract.projection, output.format)),
        outputs=(output,),
    )


def of_route(run: ResolvedRun, name: str) -> ResolvedRun:
    """Return the run of the output of a route; "" is the only output."""
    names = [each.name for each in run.request.routes or ()]
    return of_output(run, names.index(name) if name else 0)


def extract_of_output(extract: Extract, number: int) -> Extract:
    """Return an extract with the columns of one output."""
    return replace(extract, projection=projection_of_output(extract.projection, number))


def output_notices(run: ResolvedRun) -> tuple[str, ...]:
    """Return lines of outputs that may surprise: a directory named like a file, empty lines."""
    found = []
    for number, output in enumerate(run.outputs):
        found += [
            f"{place} is a directory that contains the output files; for one file use --to DIR "
            "--file-per table --file-name NAME"
            for place in output.options.destinations
            if _FILE_NAME.search(place) and destination_kind((place,)) in ("directories", "objects")
        ]
        text = output.format
        if not isinstance(text, TextFormat) or text.null or text.fixed or text.trailing_delimiter:
            continue
        columns = of_output(run, number).written.columns
        if len(columns) == 1 and columns[0].nullable:
            found.append(
                f"NULL of the only column {columns[0].name} is written as an empty line, which "
                r"many programs skip; --null '\N' writes another text"
            )
    return tuple(found)


def routes_json(run: ResolvedRun) -> list[dict[str, Any]]:
    """Return what each output becomes, for whoever reads a plan."""
    found = []
    for number, route in enumerate(run.request.routes or ()):
        own = of_output(run, number)
        options, shape = own.output.options, own.output.format
        found.append(
            {
                "name": route.name,
                "to": list(options.destinations) if options.destination else [],
                "format": "csv" if isinstance(shape, TextFormat) else "parquet",
                "compression": own.output.compression.codec,
                "filter": options.filter,
                "columns": [
                    {
                        "name": column.name,
                        "source_type": column.source_type,
                        "output_type": column.output_type,
                        "lossless": column.lossless,
                        "note": column.note,
                    }
                    for column in own.written.columns
                ],
            }
        )
    return found
