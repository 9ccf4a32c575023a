"""What is known of the destinations of outputs: who may write there, what is there, how much fits.

Nothing is made or changed. A disk is looked at once, with all that would go to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath

from msgspec import Struct, field

from unloader.checking.model import Problem
from unloader.checking.tables import Report, TableCheck, reported
from unloader.errors import OutputFailed
from unloader.lakehouse.lake_formats import lake_format, lake_kind
from unloader.model import Request
from unloader.request.directory_names import has_fields
from unloader.resolve.outputs.directories import placed
from unloader.resolve.resolution import new_run_id
from unloader.resolve.tables.homes import at_home
from unloader.storage.kinds import KEPT, destination_kind, is_kept, pipe_template, two_are_one
from unloader.storage.opening import storage_at
from unloader.storage.paths import comparable
from writers.files.room import free_bytes
from writers.model import Compression, TextFormat


class Destinations(Struct, kw_only=True):
    """The places of all outputs of a job, looked at one after the other and then together."""

    report: Report
    home: str = ""
    """Where the manifest of a run over several tables goes; empty if there is none, or not yet."""
    places: dict[int, tuple[str, ...]] = field(default_factory=dict)
    notices: dict[int, list[str]] = field(default_factory=dict)
    entries: dict[int, int] = field(default_factory=dict)
    """Which entry of the job each output is of."""
    run_id: str = field(default_factory=new_run_id)

    def look(self, number: int, entry: int, check: TableCheck | None, request: Request) -> None:
        """Look at the places of one output; those with fields need the table to be known."""
        self.entries[number] = entry
        kind = destination_kind(request.output.destinations)
        if not request.output.destination or kind in ("null", "stdout"):
            return
        if kind not in KEPT:
            self.places[number] = (request.output.destination,)
            self._pipe(entry, request.output.destination)
            return
        options = request.output
        if kind == "table":
            # Whether its columns fit is seen by `plan`, which knows those of the run.
            with reported(self.report, "to", entry):
                self.places[number] = (_place_of_table(options.destination),)
            return
        if any(map(has_fields, options.destinations)):
            if check is None or check.extract is None:
                return
            with reported(self.report, "to", entry):
                options = placed(options, check.extract, self.run_id)
            if any(map(has_fields, options.destinations)):
                return
        self.places[number] = options.destinations
        for place in options.destinations:
            error = storage_at(place).refusal(place, overwrite=options.overwrite)
            if error is not None:
                self.report(Problem(error=error, about="to", entry=entry))

    def compare(self, checks: Mapping[int, TableCheck], requests: Sequence[Request]) -> None:
        """Look for outputs that would be written over each other, and at the room for all."""
        first: dict[PurePath, int] = {}
        for number, places in self.places.items():
            for place in places:
                if first.setdefault(_real(place), number) != number:
                    self._collide(number, f"two outputs go to {place}")
        for number, places in self.places.items():
            if self.home and _real(self.home) in map(_real, places):
                error = at_home("it", self.home)
                self.report(Problem(error=error, about="to", entry=self.entries[number]))
        for number, places in self.places.items():
            for place in places:
                around = next((each for each in _real(place).parents if each in first), None)
                if around is not None and first[around] != number:
                    self._collide(number, two_are_one(str(around), str(_real(place)), same=False))
        self._room(checks, requests)

    def _collide(self, number: int, text: str) -> None:
        hint = (
            "give each output a separate directory, such as --to '/extract/{schema}.{table}', "
            "where the query-name "
        )
        error = OutputFailed(text, f"{hint}of a query is its {{table}}")
        self.report(Problem(error=error, about="to", entry=self.entries[number]))

    def _pipe(self, entry: int, place: str) -> None:
        folder, _ = pipe_template(place)
        if not Path(folder).is_dir():
            error = OutputFailed(f"{folder} is not a directory", "create it, and the pipes in it")
            self.report(Problem(error=error, about="to", entry=entry))

    def _room(self, checks: Mapping[int, TableCheck], requests: Sequence[Request]) -> None:
        """Hold the estimated output of all against what is free on each disk."""
        wanted: dict[int, list[int]] = {}
        disks: dict[int, str] = {}
        for number, check in checks.items():
            places = self.places.get(number, ())
            if not is_kept(places) or check.bytes is None:
                continue
            for place in places:
                disk = storage_at(place).disk(place)
                if disk is not None:
                    disks[disk.number] = disk.directory
                    wanted.setdefault(disk.number, []).append(number)
        sizes = {number: check.bytes or 0 for number, check in checks.items()}
        for disk_number, outputs in wanted.items():
            free = free_bytes(disks[disk_number])
            shares = [sizes[each] // len(self.places[each]) for each in outputs]
            if (
                free is None
                or sum(shares) + max(requests[each].output.min_free_bytes for each in outputs)
                <= free
            ):
                continue
            self._too_small(disks[disk_number], outputs, sum(shares), free, requests)

    def _too_small(
        self,
        directory: str,
        outputs: list[int],
        size: int,
        free: int,
        requests: Sequence[Request],
    ) -> None:
        """Report a disk that is too small; only text as it is has about the size of its table."""
        text = (
            f"{directory} has {free / 2**30:.1f} GiB free, but the tables that go there have "
            f"{size / 2**30:.1f} GiB in the source"
        )
        first = outputs[0]
        if all(_is_plain(requests[each]) for each in outputs):
            error = OutputFailed(
                text, "free disk space there, or use --compression or another --to"
            )
            self.report(Problem(error=error, about="to", entry=self.entries[first]))
        else:
            self.notices.setdefault(first, []).append(f"{text}; it may not fit")


def _place_of_table(name: str) -> str:
    kind = lake_kind(name)
    assert kind is not None
    return lake_format(kind).data_place(name)


def _is_plain(request: Request) -> bool:
    output = request.output
    return isinstance(output.format, TextFormat) and output.compression == Compression()


def _real(place: str) -> PurePath:
    return comparable(place)
