"""What may be on the disk after a power cut, given what a run did and what it synced by then.

Two models of a file system, both as unkind as they may be:

`posix`    Only what was synced is safe: a file's bytes by a sync of the file, each name in a
           directory by a sync of that directory. Of all else any part may be there and any may not:
           a name without its file's bytes, bytes without a name, the later of two changes without
           the earlier one. Three kinds of changes stay whole: a rename within a directory, an
           exchange, and a rename into another directory at least in so far as the old name never
           goes before the new one is there.
`journal`  As ext4 (data=ordered) and XFS do it: names change in the order of the calls, and a sync of
           any file or directory carries along all changes of names before it. Bytes that were not
           synced themselves may still be missing.

Bytes that are not safe are there, are missing (the file is shorter), or are zeros (a later write to
the file is there).
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from faults.recording import Bytes, Names, Recording, Step, Sync, Tree

Model = Literal["posix", "journal"]
Choose = Callable[[Step], bool]

RANDOM_STATES = 3
"""At each moment, beside those where all, nothing, or one half of it is there."""


@dataclass(frozen=True, kw_only=True)
class State:
    """One state that a power cut may leave."""

    model: Model
    step: int
    """Of the record, the last one before the cut."""
    what: str
    tree: Tree

    @property
    def label(self) -> str:
        """How it is told."""
        return f"{self.model}, after step {self.step}, {self.what}"

    def digest(self) -> str:
        """Return the same text for states that no reader can tell apart."""
        digest = hashlib.sha256()
        for path, thing in self.tree.walk():
            kind = "directory" if thing in self.tree.directories else "file"
            digest.update(f"{path}\0{kind}\0".encode())
            digest.update(hashlib.sha256(self.tree.files.get(thing, b"")).digest())
        return digest.hexdigest()

    def write(self, root: Path) -> None:
        """Put it into a directory, in place of all that is there."""
        for entry in root.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        written: dict[int, Path] = {}
        for path, thing in self.tree.walk():
            if thing in self.tree.directories:
                (root / path).mkdir()
            elif thing in written:
                os.link(written[thing], root / path)
            else:
                (root / path).write_bytes(self.tree.files.get(thing, b""))
                written[thing] = root / path


def states(recording: Recording, model: Model, seed: int) -> Iterator[State]:
    """Yield the states at each boundary, each only once: just before and just after every sync."""
    seen: set[str] = set()
    last = len(recording.steps) - 1
    for at, step in enumerate(recording.steps):
        if not isinstance(step, Sync) and at != last:
            continue
        for moment in sorted({max(at - 1, 0), at}):
            chance = random.Random(f"{seed} {model} {moment}")
            for what, names, data in _choices(recording, model, moment, chance):
                tree = _tree(recording, moment, names, data)
                state = State(model=model, step=moment, what=what, tree=tree)
                if (digest := state.digest()) not in seen:
                    seen.add(digest)
                    yield state


def _choices(
    recording: Recording, model: Model, moment: int, chance: random.Random
) -> Iterator[tuple[str, Choose, Choose]]:
    """Yield which names and which bytes of those that are not safe are there."""
    safe = _Safe(recording, model, moment)
    nothing: Choose = lambda step: False  # noqa: E731
    all_of: Choose = lambda step: True  # noqa: E731
    wanted: list[tuple[str, Choose, Choose]] = [
        ("only what was synced", nothing, nothing),
        ("everything", all_of, all_of),
        ("names without bytes", all_of, nothing),
        ("bytes without names", nothing, all_of),
    ]
    for number in range(RANDOM_STATES):
        share = chance.random()
        # In a journal names are there up to a moment, elsewhere each by itself.
        until = chance.randint(0, moment)
        taken = {step.at for step in recording.steps[: moment + 1] if chance.random() < share}
        names: Choose = (
            (lambda step, taken=taken: step.at in taken)
            if model == "posix"
            else (lambda step, until=until: step.at <= until)
        )
        data: Choose = lambda step, taken=taken: step.at in taken  # noqa: E731
        wanted.append((f"some of it ({number + 1})", names, data))
    for what, names, data in wanted:
        yield what, safe.or_(names), safe.or_(data)


class _Safe:
    """Which steps a power cut cannot undo."""

    def __init__(self, recording: Recording, model: Model, moment: int) -> None:
        self._model = model
        self._synced: dict[int, int] = {}
        self._last = -1
        for step in recording.steps[: moment + 1]:
            if isinstance(step, Sync):
                self._synced[step.thing] = self._last = step.at

    def holds(self, step: Step) -> bool:
        if isinstance(step, Names):
            if self._model == "journal":
                return step.at < self._last
            return any(step.at < self._synced.get(entry.directory, -1) for entry in step.entries)
        return isinstance(step, Bytes) and step.at < self._synced.get(step.thing, -1)

    def or_(self, choose: Choose) -> Choose:
        return lambda step: self.holds(step) or choose(step)


def _tree(recording: Recording, moment: int, names: Choose, data: Choose) -> Tree:
    tree = recording.before.copy()
    for thing in recording.folders:
        tree.directories.setdefault(thing, {})
    applied: set[int] = set()
    written: dict[int, bytearray] = {}
    for step in recording.steps[: moment + 1]:
        if isinstance(step, Names):
            if names(step) and (step.after is None or step.after in applied):
                tree.apply(step)
                applied.add(step.at)
        elif isinstance(step, Bytes) and data(step):
            content = written.setdefault(step.thing, bytearray(tree.files.get(step.thing, b"")))
            _write(content, step)
    tree.files.update((thing, bytes(content)) for thing, content in written.items())
    return tree


def _write(content: bytearray, step: Bytes) -> None:
    if len(content) < step.offset:
        content.extend(bytes(step.offset - len(content)))
    if step.data is None:
        del content[step.offset :]
    else:
        content[step.offset : step.offset + len(step.data)] = step.data
