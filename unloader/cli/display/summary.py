"""The result of a complete run, in words or as JSON: one table, several outputs, several tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import convert

from unloader.cli.display import render
from unloader.manifest.model import ROUTES, Manifest, TablesManifest, Totals, totals_of
from unloader.model import ReadColumn, Setting, Snapshot
from unloader.nouns import bytes_per_second, counted
from unloader.placement.evidence import NodeRecord, WorkerRecord
from unloader.storage.place_names import KEPT, destination_kind
from unloader.storage.storage_protocol import MANIFEST
from writers.objects.location import below

FEW_WORKERS = 8
"""With more workers than these, only the manifest has a line for each."""

Facts = Iterator[tuple[str, object]]


def show_result(document: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Show the document that `unload` or `resume` returned."""
    if values["quiet"] and not values["json"]:
        return
    place = ""
    if "tables" in document:
        run = convert(document, TablesManifest)
        place = run.options.directory
        verified = sorted({each.verified or "not complete" for each in run.tables})
        facts = (
            ("tables", run.totals.tables),
            *_rows(run.totals.rows, run.settings, run.totals.filtered_rows),
            *_totals(run.totals),
            ("snapshot", _snapshot(run.snapshot)),
            ("verified", ", ".join(verified)),
            *_places((place,)),
        )
        text, done = render.facts(facts), f"the run is complete in {place}"
    elif ROUTES in document:
        routes = convert(document[ROUTES], list[Manifest])
        totals = totals_of(routes)
        read = (("routes", len(routes)), ("rows read", totals.rows), *_totals(totals))
        shown = [
            f"route {each.route.name if each.route else ''}\n{_of_table(each)}" for each in routes
        ]
        done = f"the run is complete: {len(routes)} routes"
        text = "\n\n".join((render.facts(read), *shown))
    else:
        manifest = convert(document, Manifest)
        place, text = ",".join(manifest.places), _of_table(manifest)
        done = f"the run is complete in {place}"
    if values["json"]:
        render.emit(render.json_text(document), done=done)
    elif place and destination_kind((place,)) == "stdout":
        # The data is on stdout, so the result goes to the log. A log in JSON has it already.
        if values["log_format"] == "text":
            render.print_aside(text)
    else:
        render.emit(text, done=done, asked=False)


def _of_table(manifest: Manifest) -> str:
    totals, verified = manifest.totals, manifest.verified
    # A run too short to measure has no rates.
    rows, size, speed = totals.rows_per_second, totals.bytes_per_second, render.UNKNOWN
    if rows is not None and size is not None:
        speed = f"{render.rows_per_second(rows)}, {bytes_per_second(size)}"
    after = [("speed", speed)]
    for part in manifest.efficiency.parts if manifest.efficiency else ():
        rates = f"{part.rate / 1e6:,.1f} of {bytes_per_second(part.ceiling)}"
        if part.unit == "rows/s":
            rates = f"{render.rows_per_second(part.rate)} of {render.rows_per_second(part.ceiling)}"
        which = "this disk" if part.what == "disk" else f"the {part.what}"
        after.append(("efficiency", f"{part.share * 100:.0f} % of {which} ({rates}, {part.basis})"))
    masked = [render.name(each.name) for each in manifest.columns if each.masked is not None]
    clear = (
        f"{render.name(each.name)}, which has unmasked values of "
        + ", ".join(map(render.name, each.clear_values_of))
        for each in manifest.columns
        if each.clear_values_of
    )
    how: str = verified.level
    if verified.source_rows is not None:
        selected = {each.name for each in manifest.settings if each.effect == "selects"}
        same = " of the same selection" if selected - {"filter"} else ""
        how += f", {counted(verified.source_rows, 'row')}{same} in the source"
        if verified.filtered_rows is not None:
            how += ", with the rows that the filter left out"
    how = "no (--verify none)" if verified.level == "none" else f"{verified.result} ({how})"
    known = render.facts(
        (
            *_rows(totals.rows, manifest.settings, verified.filtered_rows),
            *_totals(totals, *after),
            ("snapshot", _snapshot(manifest.snapshot)),
            ("masked", ", ".join(masked) or None),
            *(("not masked", text) for text in clear),
            ("verified", how),
            *_places(manifest.places, manifest),
        )
    )
    whereabouts = placement_tables(manifest.nodes, manifest.workers)
    return f"{known}\n\n{whereabouts}" if whereabouts else known


def _rows(rows: int, settings: Sequence[Setting], filtered: int | None) -> Facts:
    names = {each.name for each in settings if each.effect == "selects"}
    which = ""
    if "query" in names:
        which = " (the rows of the query)"
    elif {"where", "partition", "sample", "limit-rows", "part", "session-sql"} & names:
        which = " (only the selected rows)"
    yield "rows", f"{rows:,}{which}"
    yield from selection(settings)
    yield render.left_out(filtered)


def _totals(totals: Totals, *after: tuple[str, str]) -> Facts:
    """Yield what all runs have; `after` comes after the seconds."""
    yield "bytes", render.exact_size(totals.bytes)
    yield "files", totals.files
    yield "seconds", f"{totals.seconds:.2f}"
    yield from after
    yield "CPU seconds", f"{totals.cpu_seconds:.2f}"


def selection(settings: Sequence[Setting]) -> Facts:
    """Yield the lines on the settings that select rows or columns."""
    for each in settings:
        if each.effect == "selects":
            yield "selected by", each.text


def _places(places: Sequence[str], manifest: Manifest | None = None) -> Facts:
    kind, first = destination_kind(tuple(places)), places[0]
    if kind not in KEPT:
        dropped = kind == "null"
        yield "dropped" if dropped else "sent to", "standard output" if kind == "stdout" else first
        return
    if len(places) == 1:
        yield "directory", first
    for each in (manifest.directories if manifest else None) or ():
        held = f"{counted(each.bytes, 'byte')} in {counted(each.files, 'file')}"
        yield "directory", f"{each.path} ({held})"
    yield "manifest", below(first, MANIFEST)


def _snapshot(snapshot: Snapshot | None) -> str:
    if snapshot is None or snapshot.kind == "none":
        return "none: each work unit was read at its own time"
    return f"{snapshot.kind} {snapshot.value}".strip()


def placement_tables(nodes: Sequence[NodeRecord], workers: Sequence[WorkerRecord]) -> str:
    """Return a table of the nodes, and one of the workers if they are few; "" on one node."""
    if len(nodes) < 2:
        return ""
    rows: list[tuple[object, ...]] = []
    for node in nodes:
        mine = [each for each in workers if each.seat.node == node.node]
        shares = [each.local_share for each in mine if each.local_share is not None]
        speeds = (node.rows_per_second, render.megabytes(node.bytes_per_second))
        rows.append((node.node, node.workers, *speeds, _percent(min(shares, default=None))))
    by_node = render.table((">node", ">workers", ">rows/s", ">MB/s", ">least local memory"), rows)
    if len(workers) > FEW_WORKERS:
        return by_node
    heads = (">worker", ">node", "seat's CPUs", "ran on CPUs", ">local memory")
    rows = [
        (
            *(each.worker, each.seat.node, render.ranges(each.seat.cpus) or None),
            *(render.ranges(each.ran_on) or None, _percent(each.local_share)),
            *(each.rows, each.restarts),
        )
        for each in workers
    ]
    return f"{by_node}\n\n{render.table((*heads, '>rows', '>restarts'), rows)}"


def _percent(share: float | None) -> str | None:
    # Rounded down: only a share of 1 is shown as 100.0 %.
    return None if share is None else f"{int(share * 1000) / 10:.1f} %"


_FORMS = (
    (("int", "uint"), "whole number"),
    (("decimal",), "number, all digits"),
    (("float", "double", "halffloat"), "number, shortest exact"),
    (("bool",), "true or false"),
    (("date",), "date, ISO 8601"),
    (("time32", "time64"), "time, ISO 8601"),
    (("duration", "month_day_nano", "interval"), "interval"),
    (("binary", "large_binary", "fixed_size_binary"), "binary, hexadecimal"),
    (("list", "large_list", "fixed_size_list", "struct", "map"), "JSON"),
    (("null",), "always NULL"),
)
"""The beginnings of Arrow types' names, and their forms in the default dialect."""


def csv_form(output_type: str) -> str:
    """Return the form of an Arrow type in the default dialect; `text` for all text."""
    if output_type.startswith("timestamp"):
        return "timestamp with offset, ISO 8601" if "tz=" in output_type else "timestamp, ISO 8601"
    for beginnings, form in _FORMS:
        if output_type.startswith(beginnings):
            return form
    return "text"


def column_table(columns: Iterable[ReadColumn], *, is_text: bool, head: str = "column") -> str:
    """Return a table of columns with their types in the source and in the output."""
    return render.table(
        (head, "type", "in the output", "lossless", "note"),
        (
            (
                *(render.name(each.name), each.source_type or None),
                csv_form(each.output_type) if is_text else each.output_type,
                *(each.lossless, each.note or ""),
            )
            for each in columns
        ),
    )
