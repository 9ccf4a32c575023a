"""A record of every change below a directory, as `recorded_calls.c` writes it, as steps of a model.

In the model a directory is a mapping of names to things, and a thing (a file or a directory) has a
number of its own for as long as the record goes: inodes are used again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = 0
"""The thing that is the directory itself."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A name in a directory comes to lead to a thing, or to nothing."""

    directory: int
    name: str
    thing: int | None
    former: int | None = None
    """What it must lead to for a removal to have an effect."""


@dataclass(frozen=True, kw_only=True)
class Names:
    """Changes of names; they are on the disk all or none."""

    at: int
    """Place in the record."""
    entries: tuple[Entry, ...]
    after: int | None = None
    """The step that must be on the disk before this one can: a file is never without a name."""


@dataclass(frozen=True, kw_only=True)
class Bytes:
    """A change of a file."""

    at: int
    thing: int
    offset: int
    data: bytes | None
    """None cuts the file at the offset, or extends it."""


@dataclass(frozen=True, kw_only=True)
class Sync:
    """A file's bytes, or a directory's names, have been carried to the disk."""

    at: int
    thing: int


Step = Names | Bytes | Sync


@dataclass
class Tree:
    """Things and names at one moment."""

    directories: dict[int, dict[str, int]] = field(default_factory=lambda: {ROOT: {}})
    files: dict[int, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, root: Path) -> tuple[Tree, dict[int, int]]:
        """Return what lies in a directory, and the thing of each inode."""
        tree, numbers = cls(), {os.stat(root).st_ino: ROOT}
        for folder, names, files in os.walk(root):
            here = numbers[os.stat(folder).st_ino]
            for name in sorted((*names, *files)):
                path = Path(folder, name)
                thing = numbers.setdefault(os.lstat(path).st_ino, len(numbers))
                tree.directories[here][name] = thing
                if name in names:
                    tree.directories[thing] = {}
                else:
                    tree.files[thing] = path.read_bytes()
        return tree, numbers

    def apply(self, names: Names) -> None:
        """Change names."""
        for entry in names.entries:
            folder = self.directories.setdefault(entry.directory, {})
            if entry.thing is not None:
                folder[entry.name] = entry.thing
            elif folder.get(entry.name) == entry.former:
                folder.pop(entry.name, None)

    def copy(self) -> Tree:
        """Return one that can be changed."""
        folders = {thing: dict(names) for thing, names in self.directories.items()}
        return Tree(folders, dict(self.files))

    def walk(self, thing: int = ROOT, path: str = "") -> Iterator[tuple[str, int]]:
        """Yield each path that a reader finds, with its thing, directories before what they hold."""
        for name, child in sorted(self.directories.get(thing, {}).items()):
            below = f"{path}/{name}" if path else name
            yield below, child
            if child in self.directories:
                yield from self.walk(child, below)


class Recording:
    """What was there before, and every step since."""

    def __init__(self, root: Path) -> None:
        """Look at what is there before the command starts."""
        self.root = root
        self.before, self._numbers = Tree.of(root)
        self._next = len(self._numbers)
        self._now = self.before.copy()
        self.steps: list[Step] = []
        self.folders: set[int] = set(self.before.directories)
        """Things that are directories."""

    def read(self, log: Path) -> None:
        """Take the steps of a record."""
        data = log.read_bytes()
        place = 0
        while place < len(data):
            end = data.index(b"\n", place)
            call, *parts = os.fsdecode(data[place:end]).split("\t")
            place = end + 1
            if call == "write":
                inode, offset, length = map(int, parts)
                self._bytes(inode, offset, data[place : place + length])
                place += length
            else:
                self._take(call, parts)

    def _take(self, call: str, parts: list[str]) -> None:
        if call in ("create", "mkdir"):
            self._numbers[int(parts[0])] = thing = self._next
            self._next += 1
            if call == "mkdir":
                self.folders.add(thing)
                self._now.directories[thing] = {}
            self._names(self._entry(parts[1], thing))
        elif call == "truncate":
            self._bytes(int(parts[0]), int(parts[1]), None)
        elif call == "sync":
            if int(parts[0]) in self._numbers:
                self.steps.append(Sync(at=len(self.steps), thing=self._numbers[int(parts[0])]))
        elif call in ("unlink", "rmdir"):
            self._names(self._removal(parts[0]))
        elif call == "rename":
            self._rename(*parts)
        elif call == "exchange":
            one, other = (self._thing(part) for part in parts)
            self._names(self._entry(parts[0], other), self._entry(parts[1], one))
        elif call == "link":
            self._names(self._entry(parts[1], self._thing(parts[0])))
        else:
            raise AssertionError(f"no model of {call} {parts}")

    def _rename(self, source: str, target: str) -> None:
        thing = self._thing(source)
        if os.path.dirname(source) == os.path.dirname(target):
            self._names(self._removal(source), self._entry(target, thing))
            return
        # In two directories: the new name may be there before the old one is gone.
        removal = self._removal(source)
        first = self._names(self._entry(target, thing))
        self._names(removal, after=first)

    def _names(self, *entries: Entry, after: int | None = None) -> int:
        step = Names(at=len(self.steps), entries=entries, after=after)
        self.steps.append(step)
        self._now.apply(step)
        return step.at

    def _bytes(self, inode: int, offset: int, data: bytes | None) -> None:
        if inode in self._numbers:
            thing = self._numbers[inode]
            self.steps.append(Bytes(at=len(self.steps), thing=thing, offset=offset, data=data))

    def _entry(self, path: str, thing: int) -> Entry:
        folder, name = os.path.split(path)
        return Entry(directory=self._thing(folder), name=name, thing=thing)

    def _removal(self, path: str) -> Entry:
        folder, name = os.path.split(path)
        here = self._thing(folder)
        return Entry(
            directory=here, name=name, thing=None, former=self._now.directories[here][name]
        )

    def _thing(self, path: str) -> int:
        thing = ROOT
        for name in Path(path).relative_to(self.root).parts:
            thing = self._now.directories[thing][name]
        return thing
