"""Power cuts: calls of a run recorded, and what may be on the disk after any of them."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from processes import breaking, command
from processes.breaking import kill_after

from faults import outcomes
from faults.targets import Target

ROOT = 0
"""The thing that is the directory itself."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A name in a directory comes to lead to a thing, or to nothing."""

    directory: int
    name: str
    thing: int | None
    former: int | None = None
    """The target that it must have for a removal to have an effect."""


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
        """Return the entries of a directory, and the content of each inode."""
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
        """Yield each path that a reader finds, with its thing, directories before their entries."""
        for name, child in sorted(self.directories.get(thing, {}).items()):
            below = f"{path}/{name}" if path else name
            yield below, child
            if child in self.directories:
                yield from self.walk(child, below)


class Recording:
    """The files before, and every step since."""

    def __init__(self, root: Path) -> None:
        """Record the files before the command starts."""
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
        """How it is reported."""
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
        """Put it into a directory, in place of all files there."""
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
    """Yield which names and which bytes of the ones that are not safe are there."""
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
        # With a journal all names up to a moment survive, elsewhere each survives separately.
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


SOURCE = Path(breaking.__file__).parent / "recorded_calls.c"


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A command whose changes are recorded, and the files before it."""

    name: str
    earlier: bool = False
    """A finished run of other rows, which is replaced."""
    broken: bool = False
    """A run that was killed after some of its units, which is resumed."""


SCENES = (
    Scene(name="a first run"),
    Scene(name="a run that replaces another", earlier=True),
    Scene(name="a run that is resumed", broken=True),
)


class Crashes:
    """One scene: recorded once, then cut off at each boundary."""

    def __init__(self, scene: Scene, target: Target, place: Path) -> None:
        """Record it.

        Args:
            scene: The commands.
            target: A small table in another directory.
            place: An empty directory. The files of a run contain paths, so every state is written
                to the place where the run was.
        """
        self.scene, self.target = scene, target
        self.root = place / "root"
        self._aside = place / "aside"
        self.expected = self._reference()
        self.earlier: outcomes.Outcome | None = None
        self.root.mkdir()
        if scene.earlier:
            self._end(self._job("--columns", "id"))
            self.earlier = outcomes.outcome_of(self.dest, besides=target.besides)
        if scene.broken:
            self._break()
        self.recording = self._recorded(place)

    @property
    def dest(self) -> Path:
        """The destination; the directory around it is new, too."""
        return self.root / "new" / "out"

    def states(self, model: Model, seed: int) -> Iterator[State]:
        """Yield what a power cut may leave."""
        return states(self.recording, model, seed)

    def wrong_at_once(self, state: State) -> str:
        """Put a state in place; return the promise that it breaks, or nothing.

        All files with final names belong to one run, byte for byte.
        """
        self.root.mkdir(exist_ok=True)
        state.write(self.root)
        wrong = outcomes.unfinished_under_final_names(self.dest)
        if wrong:
            return f"{self.dest} holds {wrong}"
        if not (self.dest / outcomes.MANIFEST).exists():
            return "the earlier run is gone, and no other is there" if self.earlier else ""
        return self._other_than_whole(allowed=(self.expected, self.earlier))

    def wrong_after(self, chance: random.Random) -> str:
        """Continue from the state that is in place; return the broken promise, or nothing."""
        job = self._job(*(("--overwrite",) if self.earlier else ()))
        was_done = self._is_new()
        if chance.random() < 0.5:
            done = command.ended("resume", str(self.dest))
            if done.returncode and self._is_on_record():
                return f"resume ended with {done.returncode}: {done.stderr}"
            if done.returncode or not self._is_new():
                done = command.ended(*job)
        else:
            done = command.ended(*job, "--resume-or-start")
            if was_done and done.returncode == 6:
                # A finished run is replaced only if the command asks for it.
                return "" if "holds a finished run" in done.stderr else done.stderr
        if done.returncode:
            return f"exit {done.returncode}: {done.stderr}"
        wrong = outcomes.unfinished_under_final_names(self.dest)
        return wrong or self._other_than_whole(allowed=(self.expected,))

    def _other_than_whole(self, *, allowed: tuple[outcomes.Outcome | None, ...]) -> str:
        aside = self._aside
        shutil.rmtree(aside, ignore_errors=True)
        # The records of a run beside its files are not published.
        shutil.copytree(self.dest, aside, ignore=shutil.ignore_patterns(outcomes.RUN))
        found = outcomes.outcome_of(aside, besides=self.target.besides)
        differs = [each.differences(found) for each in allowed if each is not None]
        return "" if [] in differs else f"other than whole: {differs}"

    def _is_on_record(self) -> bool:
        return (self.dest / outcomes.RUN / "run.json").exists()

    def _is_new(self) -> bool:
        try:
            document = json.loads((self.dest / outcomes.MANIFEST).read_bytes())
        except FileNotFoundError:
            return False
        return len(document["columns"]) > 1

    def _job(self, *more: str) -> list[str]:
        job = self.target.job(self.dest, *more)
        # One worker: the order of the calls is the same each time, except for threads.
        job[job.index("--parallelism") + 1] = "1"
        return job

    def _reference(self) -> outcomes.Outcome:
        self._end(self._job())
        found = outcomes.outcome_of(self.dest, besides=self.target.besides)
        shutil.rmtree(self.root)
        return found

    def _break(self) -> None:
        """Leave a run that was killed once two of its units were done, and others were not."""
        assert kill_after(2, self.dest, *self._job())

    def _recorded(self, place: Path) -> Recording:
        library = breaking.build(SOURCE, place)
        log = place / "record"
        recording = Recording(self.root)
        more = ("--overwrite",) if self.earlier else ()
        job = ["resume", str(self.dest)] if self.scene.broken else self._job(*more)
        done = subprocess.run(
            [*command.UNLOADER, *job],
            capture_output=True,
            text=True,
            check=False,
            env={
                **os.environ,
                **self.target.environment,
                "LD_PRELOAD": str(library),
                "RECORD_ROOT": str(self.root),
                "RECORD_LOG": str(log),
            },
        )
        assert done.returncode == 0, done.stderr
        recording.read(log)
        log.unlink()
        return recording

    def _end(self, arguments: list[str]) -> None:
        done = command.ended(*arguments, env={**os.environ, **self.target.environment})
        assert done.returncode == 0, done.stderr
