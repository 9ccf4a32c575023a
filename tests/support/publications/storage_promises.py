"""The contract of a storage as one call, for the tests of this package and of other packages.

No test framework is needed: a broken promise raises `AssertionError` with a sentence saying which.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from unloader.errors import OutputFailed
from unloader.storage.place_names import path_of
from unloader.storage.storage_protocol import (
    JOURNAL,
    MANIFEST,
    RUN_RECORD,
    STAGED_LINE,
    STATUS,
    Claim,
    Index,
    Move,
    RunStorage,
    Storage,
)
from writers.errors import WriteError
from writers.files.read_back import Readable
from writers.files.sink import Sink
from writers.model import Compression, UncompletedUpload
from writers.objects.location import Location

CutShort = Callable[[RunStorage, Sequence[Move], bytes], None]
"""Begins a commit of a run and dies in the middle of it; returns when the process would be dead."""

Contents = dict[tuple[int, str], bytes]
"""Number of the place and final name, to the bytes."""


def check_storage(
    storage: Storage, places: Sequence[str], *, cuts: Sequence[CutShort] = (), uploads: bool = False
) -> None:
    """Check what `unloader.storage.storage_protocol` promises.

    Args:
        storage: The storage under test.
        places: At least one, all of them empty; at the end there are the files of a finished run,
            and one more.
        cuts: Commits that are finished one after the other; without them finishing is not checked.
        uploads: Files are uploaded to their final names, see `Claim.names`.

    Raises:
        AssertionError: The storage broke a promise.
    """
    case = _Case(storage, tuple(places), uploads)
    _check_disk(case)
    _check_abandon(case)
    first = _check_commit(case)
    _check_lock(case, first)
    _check_watched(case, first)
    _check_death(case, first)
    _check_partial(case, first)
    _check_resumed(case, first)
    _check_all_or_nothing(case, first)
    _check_discard(case)
    second = _check_replacement(case)
    for number, cut_short in enumerate(cuts):
        if number:
            second = _check_replacement(case)
        _check_cut_short(case, second, cut_short)
    _check_new_file(case)


def contents_of(storage: Storage, places: Sequence[str]) -> Contents:
    """Return all that has a final name at these places."""
    found = {}
    for number, place in enumerate(places):
        with suppress(FileNotFoundError):  # the place does not exist yet
            for name in storage.names(place):
                found[number, name] = bytes_of(storage.file(place, name))
    return found


def bytes_of(file: Readable) -> bytes:
    """Return the bytes of a local or a remote file."""
    if isinstance(file, Path):
        return file.read_bytes()
    with file.open() as opened:
        return opened.read()


class _Case(Struct, frozen=True):
    """A storage under test, with the places that it is tried on."""

    storage: Storage
    places: tuple[str, ...]
    uploads: bool

    def take(self, run_id: str, *, overwrite: bool = True, resumed: bool = False) -> RunStorage:
        return self.storage.take(
            Claim(
                places=self.places,
                run_id=run_id,
                overwrite=overwrite,
                read_index=_read_index,
                resumed=resumed,
                names=("*",) if self.uploads else (),
            )
        )

    def stage(self, run: RunStorage, text: str, *names: str) -> list[Move]:
        """Write a file with each final name to each place; return the moves."""
        moves = []
        for number in range(len(self.places)):
            for name in names:
                staged, final = f"{name}-a1.part", f"{name}.{number}"
                data = f"{text} {final}\n".encode()
                if self.uploads:
                    moves.append(Move(number, staged, final, _uploaded(run, number, final, data)))
                    continue
                write_staged(run, number, staged, data)
                moves.append(Move(number, staged, final))
        return moves

    def manifest(self, run_id: str, moves: Sequence[Move]) -> bytes:
        files = [[move.place, move.final] for move in moves]
        return json.dumps({"run_id": run_id, "places": self.places, "files": files}).encode()

    def expected(self, run_id: str, moves: Sequence[Move]) -> Contents:
        files = {(move.place, move.final): f"{run_id} {move.final}\n".encode() for move in moves}
        return {**files, (0, MANIFEST): self.manifest(run_id, moves)}

    def contents(self) -> Contents:
        return contents_of(self.storage, self.places)

    def check_nobody(self, when: str) -> None:
        for place in self.places:
            _ensure(self.storage.who_was_here(place) is None, f"{place} is taken {when}")


def write_staged(run: RunStorage, place: int, name: str, data: bytes) -> None:
    """Write a staged file as a worker does."""
    target = path_of(run.staging(place)) / name
    sink = Sink(target, compression=Compression(), buffer_bytes=1024, buffers=2)
    sink.write(data)
    sink.close()


def _uploaded(run: RunStorage, place: int, name: str, data: bytes) -> UncompletedUpload:
    target = Location.parse(run.places[place]).below(name)
    sink = Sink(target, compression=Compression(), buffer_bytes=1024, buffers=2, held=True)
    sink.write(data)
    sink.close()
    assert sink.upload is not None
    return sink.upload


def _read_index(data: bytes, place: str) -> Index:
    document = json.loads(data)
    return Index(
        run_id=document["run_id"],
        places=tuple(document["places"]),
        files=tuple((number, name) for number, name in document["files"]),
    )


def _check_disk(case: _Case) -> None:
    for place in case.places:
        disk = case.storage.disk(place)
        _ensure(disk is None or Path(disk[1]).is_dir(), "the disk's directory does not exist")


def _check_abandon(case: _Case) -> None:
    with closing(case.take("abandoned", overwrite=False)) as run:
        case.stage(run, "abandoned", "a")
        run.keep(RUN_RECORD, b"{}")
        run.append(b"{}\n")
        run.abandon(None)
    _ensure(case.contents() == {}, "an abandoned run left files with final names")
    case.check_nobody("after a run without results was abandoned")


def _check_commit(case: _Case) -> Contents:
    with closing(case.take("first", overwrite=False)) as run:
        _ensure(list(run.places) == list(case.places), "places changed their order")
        moves = case.stage(run, "first", "a", "b")
        run.check_names((move.place, move.final) for move in moves)
        run.keep(RUN_RECORD, b"old")
        run.keep(RUN_RECORD, b"new")
        _ensure(case.contents() == {}, "staged files or records have final names")
        for move in moves:
            text = f"first {move.final}\n".encode()
            _ensure(_is_staged(run, move, text), "a staged file reads back differently")
        run.show(b"how far it is")
        run.commit(moves, case.manifest("first", moves))
        run.show(b"late")
    expected = case.expected("first", moves)
    _ensure(case.contents() == expected, "the committed files differ from the written files")
    home = case.places[0]
    _ensure(case.storage.places_below(home, 0) == (home,), "a place with a run is not found")
    _ensure(
        case.storage.read(home, MANIFEST) == expected[0, MANIFEST], "`read` returns other bytes"
    )
    case.check_nobody("after a commit")
    return expected


def _check_lock(case: _Case, standing: Contents) -> None:
    _refused(lambda: case.take("second", overwrite=False), "a finished run without overwrite")
    with closing(case.take("second")) as run:
        for place in case.places:
            who = case.storage.who_was_here(place)
            _ensure(who is not None and who.is_running, f"{place} is not taken while a run has it")
            _ensure(
                who is not None and who.run_id == "second",
                "the storage reports another run in a place with one run",
            )
        _refused(lambda: case.take("third"), "a place that a run is using")
        for dry_run in (True, False):
            _refused(
                lambda dry_run=dry_run: case.storage.clear(case.places, dry_run=dry_run),  # type: ignore[misc]
                "clearing a place that a run is using",
            )
        run.abandon(None)
    _ensure(case.contents() == standing, "a refused or abandoned run changed a finished one")


def _check_new_file(case: _Case) -> None:
    """A small file is written unless the name is in use."""
    place, name = case.places[0], "new.json"
    case.storage.put_new(place, name, b"first")
    try:
        case.storage.put_new(place, name, b"second")
    except FileExistsError:
        pass
    else:
        raise AssertionError("a file that was there is written again")
    _ensure(
        case.storage.read(place, name) == b"first", "a new file has other content than was written"
    )
    _ensure(
        case.storage.size(place, name) == 5, "the reported size of a file differs from its bytes"
    )
    _ensure(name in case.storage.names(place), "a new file is not among the names")


def _check_watched(case: _Case, standing: Contents) -> None:
    """Others see how far a run is and can ask it to end, the next one at the same places not."""
    home = case.places[0]
    _ensure(
        case.storage.record(home, STATUS) == b"",
        "the storage has a record of a run that does not exist",
    )
    run = case.take("watched")
    case.stage(run, "watched", "a")
    for data in (b"longer than", b"the next"):
        run.show(data)
        _ensure(
            case.storage.record(home, STATUS) == data, "the status that a run shows cannot be read"
        )
    who = case.storage.who_was_here(home)
    _ensure(
        bool(who and who.host and who.since), "the machine and the start time of a run are unknown"
    )
    _ensure(not run.requests().stop, "a run is asked to end without a request")
    case.storage.ask(case.places[-1], stop=True)
    _ensure(run.requests().stop, "a run does not see the request to end")
    _ensure(not run.requests().change, "a run has a request that was never made")
    for wish in ("one thing", "another"):
        case.storage.ask(case.places[-1], change=wish)
        _ensure(run.requests().change == wish, "a request does not reach the run")
    run.close()
    _ensure(case.storage.record(home, STATUS) == b"the next", "a dead run still shows a status")
    with closing(case.take("watched", resumed=True)) as again:
        _ensure(not again.requests().stop, "a resumed run still has the old request to end")
        _ensure(not again.requests().change, "a resumed run still has the old request")
        again.show(b"again")
        _ensure(
            case.storage.record(home, STATUS) == b"again",
            "the status of a resumed run cannot be read",
        )
    with closing(case.take("next")) as following:
        _ensure(not following.requests().stop, "a request to a dead run reaches the next run")
        _ensure(case.storage.record(home, STATUS) == b"", "a run shows the status of a dead run")
        following.abandon(None)
        following.show(b"late")
    _ensure(case.contents() == standing, "a watched run changed a finished one")
    case.check_nobody("after a watched run was abandoned")


def _check_death(case: _Case, standing: Contents) -> None:
    """A run whose process ends without a word has released its lock and nothing else."""
    run = case.take("dead")
    case.stage(run, "dead", "a")
    run.append(b'{"event": "started", "unit": "1"}\n')
    run.append(STAGED_LINE + b',"unit":"1"}\n')
    run.close()
    _ensure(case.contents() == standing, "a dead run changed files with final names")
    who = case.storage.who_was_here(case.places[-1])
    _ensure(
        who is not None and not who.is_running, "a dead run is not found, or is reported as running"
    )
    _ensure(
        who is not None and len(who.places) == len(case.places),
        "the places of a dead run are unknown",
    )
    for dry_run in (True, False):
        found = case.storage.clear(case.places[-1:], dry_run=dry_run).removed
        _ensure(
            {each.run_id for each in found} == {"dead"},
            "the leftovers of a dead run are not reported",
        )
        _ensure(
            sum(each.files for each in found) == len(case.places), "staged files are miscounted"
        )
        _ensure(sum(each.units for each in found) == 1, "finished units are miscounted")
    _ensure(case.contents() == standing, "clearing changed a finished run")
    case.check_nobody("after it was cleared")


def _check_partial(case: _Case, standing: Contents) -> None:
    run = case.take("partial")
    case.stage(run, "partial", "a")
    run.abandon(b"{}")
    run.close()
    _ensure(case.contents() == standing, "a partial run changed files with final names")
    with closing(case.take("next")) as following:
        _ensure(any("partial" in text for text in following.notices), "its loss is not reported")
        following.abandon(None)


def _check_resumed(case: _Case, standing: Contents) -> None:
    """A run that died is taken over with all that it has staged and recorded."""
    _refused(lambda: case.take("resumed", resumed=True), "resuming a run that never existed")
    case.check_nobody("after a run could not be resumed")
    run = case.take("resumed")
    moves = case.stage(run, "resumed", "a", "b")
    run.keep(RUN_RECORD, b"{}")
    run.append(b"1\n")
    run.close()
    home = case.places[0]
    _ensure(case.storage.record(home, RUN_RECORD) == b"{}", "a dead run's record is not read")
    _refused(lambda: case.take("other", resumed=True), "resuming a run that is not in the place")
    with closing(case.take("resumed", resumed=True)) as again:
        _refused(lambda: case.take("resumed", resumed=True), "resuming a run that is still working")
        _ensure(again.recorded(JOURNAL) == b"1\n", "a resumed run lost its journal")
        again.append(b"2\n")
        _ensure(
            again.recorded(JOURNAL) == b"1\n2\n", "a resumed run cannot continue with its journal"
        )
        again.keep(JOURNAL, b"3\n")
        again.append(b"4\n")
        _ensure(again.recorded(JOURNAL) == b"3\n4\n", "a replaced journal is not continued")
        first = moves[0]
        if first.upload is not None:
            again.discard_others((), {first.upload.id})
        else:
            again.discard_others({(first.place, first.staged)})
        text = f"resumed {first.final}\n".encode()
        _ensure(_is_staged(again, first, text), "a kept file reads differently")
        left = [case.storage.who_was_here(place) for place in case.places]
        files = sum(each.left.files for each in left if each is not None)
        _ensure(files == 1, "`discard_others` removed too much or too little")
        again.abandon(None)
    _ensure(case.contents() == standing, "a resumed run changed a finished one")
    case.check_nobody("after a resumed run was abandoned")


def _check_all_or_nothing(case: _Case, standing: Contents) -> None:
    with closing(case.take("broken")) as run:
        moves = case.stage(run, "broken", "a", "c")
        lost = None if moves[0].upload is None else replace(moves[0].upload, id="lost")
        missing = [*moves, Move(len(case.places) - 1, "missing.part", "missing", lost)]
        _refused(lambda: run.commit(missing, case.manifest("broken", missing)), "a missing file")
        _ensure(case.contents() == standing, "a refused commit changed a finished run")
        twice = [*moves, moves[1]._replace(place=moves[0].place, final=moves[0].final)]
        _refused(lambda: run.commit(twice, case.manifest("broken", twice)), "one name twice")
        _ensure(case.contents() == standing, "a refused commit changed a finished run")
        run.abandon(None)
    _ensure(case.contents() == standing, "an abandoned run changed a finished one")


def _check_discard(case: _Case) -> None:
    with closing(case.take("discarding")) as run:
        for name in ("1-a1.csv.part", "1-a1.001.csv.part", "2-a1.part", "1-a12.csv.part"):
            write_staged(run, 0, name, b"1")
        run.discard("1-a1", "2-a1", "3-a1")
        who = case.storage.who_was_here(case.places[0])
        _ensure(who is not None and who.left.files == 1, "`discard` removed too much or too little")
        run.abandon(None)


def _check_replacement(case: _Case) -> Contents:
    with closing(case.take("second")) as run:
        moves = case.stage(run, "second", "b", "c")
        case.stage(run, "second", "unused")
        run.check_names((move.place, move.final) for move in moves)
        run.commit(moves, case.manifest("second", moves))
    expected = case.expected("second", moves)
    _ensure(case.contents() == expected, "an earlier run was not replaced as a whole")
    case.check_nobody("after an earlier run was replaced")
    return expected


def _check_cut_short(case: _Case, standing: Contents, cut_short: CutShort) -> None:
    run = case.take("third")
    moves = case.stage(run, "third", "c", "d")
    cut_short(run, moves, case.manifest("third", moves))
    run.close()
    found = case.contents()
    whole = case.expected("third", moves)
    if found.get((0, MANIFEST)) == whole[0, MANIFEST]:
        _ensure(whole.items() <= found.items(), "a manifest exists without its files")
    elif (0, MANIFEST) in found:
        _ensure(found == standing, "the earlier manifest exists without its files")
    ended = [each for place in case.places for each in case.storage.complete(place)]
    _ensure(
        [each.run_id for each in ended] == ["third"], "the completion of a commit is not reported"
    )
    _ensure(
        any("third" in text for text in ended[0].messages),
        "a commit is completed without a message",
    )
    _ensure(case.contents() == whole, "an interrupted commit was not completed")
    case.check_nobody("after a commit was completed")


def _is_staged(run: RunStorage, move: Move, data: bytes) -> bool:
    """Return whether a file is there to be published, as far as can be seen."""
    if move.upload is None:
        return bytes_of(run.staged_file(move.place, move.staged)) == data
    run.compare_upload(move.place, move.upload)
    return move.upload.bytes == len(data)


def _refused(act: Callable[[], object], what: str) -> None:
    try:
        act()
    except (OutputFailed, WriteError):
        return
    raise AssertionError(f"{what} was not refused")


def _ensure(holds: bool, otherwise: str) -> None:
    if not holds:
        raise AssertionError(otherwise)
