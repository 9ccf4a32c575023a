"""Power cuts at every boundary of a recorded run: what is left, and that it can be gone on with."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from processes import command, preloaded
from processes.breaking import kill_after

from faults import outcomes
from faults.durability import Model, State, states
from faults.recording import Recording
from faults.targets import Target

SOURCE = Path(preloaded.__file__).parent / "recorded_calls.c"


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A command whose changes are recorded, and what stands there before it."""

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
            scene: What is done.
            target: A small table; it lies elsewhere.
            place: An empty directory. Paths are on record in what a run leaves, so every state is
                written to the very place where the run was.
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
        """Put a state in place; return what is wrong before anybody goes on, or nothing.

        Whatever has a final name is all of one run, byte for byte.
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
        """Go on from the state that is in place; return what is wrong then, or nothing."""
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
                # What is finished is replaced only where that is asked for.
                return "" if "holds a finished run" in done.stderr else done.stderr
        if done.returncode:
            return f"exit {done.returncode}: {done.stderr}"
        wrong = outcomes.unfinished_under_final_names(self.dest)
        return wrong or self._other_than_whole(allowed=(self.expected,))

    def _other_than_whole(self, *, allowed: tuple[outcomes.Outcome | None, ...]) -> str:
        aside = self._aside
        shutil.rmtree(aside, ignore_errors=True)
        # What a run keeps beside its files is no part of what it published.
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
        # One worker: the order of the calls is the same each time, but for threads.
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
        library = preloaded.build(SOURCE, place)
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
