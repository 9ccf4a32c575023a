"""One whole unload under a fault: run, fault, remains, resume, and the final output."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from processes import command

from faults import outcomes
from faults.catalog import NO_THREAD_LOCAL, Fault
from faults.injections import Libraries, Surroundings
from faults.targets import Target, wrong_rows

LONGEST_SECONDS = 600
"""A run of a small table that takes longer hangs. Guess: a machine full of other work is slow."""

MOST_RESUMES = 10

COMPLETE = (0, 9)
"""Exit statuses of a run that is whole; 9 is that no one could be told."""


class BrokenPromise(AssertionError):
    """A promise that did not hold; the text has the fault, the seed and the log."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """What became of a trial."""

    fault: str
    seed: int
    status: int
    """Of the disturbed run; negative is the signal that ended it."""
    resumes: int
    kept: int
    """Finished units that were not run again."""
    seconds: float


@dataclass(kw_only=True)
class Trials:
    """Trials on one target, each in its own directory."""

    target: Target
    place: Path
    libraries: Libraries
    _references: dict[tuple[str, ...], tuple[outcomes.Outcome, float]] = field(default_factory=dict)

    def run(self, fault: Fault, seed: int) -> Report:
        """Do one; nothing stays.

        Raises:
            BrokenPromise: One of them.
        """
        # A comma is between two directories in `--to`.
        directory = self.place / re.sub(r"\W+", "-", f"{fault.name}-{seed}")
        directory.mkdir(mode=0o755)
        try:
            return _Trial(self, fault, seed, directory).done()
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def reference(self, options: tuple[str, ...]) -> tuple[outcomes.Outcome, float]:
        """Return what an undisturbed run leaves, and its seconds."""
        if options not in self._references:
            to = self.place / "undisturbed"
            began = time.monotonic()
            process = subprocess.run(
                [*command.UNLOADER, *self.target.job(to, *options)],
                capture_output=True,
                text=True,
                check=False,
                env={**os.environ, **self.target.environment},
            )
            assert process.returncode == 0, process.stderr
            found = outcomes.outcome_of(to, besides=self.target.besides)
            self._references[options] = found, time.monotonic() - began
            shutil.rmtree(to)
        return self._references[options]


@dataclass
class _Trial:
    trials: Trials
    fault: Fault
    seed: int
    directory: Path
    log: str = ""
    done_before: dict[str, tuple[outcomes.Identity, ...]] = field(default_factory=dict)

    @property
    def target(self) -> Target:
        return self.trials.target

    @property
    def dest(self) -> Path:
        return self.directory / "out"

    @property
    def options(self) -> tuple[str, ...]:
        return (*self.fault.options, *self.fault.injection.options)

    def done(self) -> Report:
        began = time.monotonic()
        expected, seconds = self.trials.reference(self.options)
        earlier = self._earlier_run() if self.fault.overwrites else None
        around = Surroundings(
            target=self.target,
            destination=self.dest,
            libraries=self.trials.libraries,
            log=self.directory / "failed-calls",
            chance=random.Random(self.seed),
            seconds=seconds,
        )
        status = self._disturbed(around)
        self._check(status in self.fault.statuses, f"exit {status}, not {self.fault.statuses}")
        self._check_told(status)
        self._check_left(earlier)
        resumes = self._go_on(status, earlier)
        self._check_end(expected, around)
        kept = len(self.done_before)
        return Report(
            fault=self.fault.name,
            seed=self.seed,
            status=status,
            resumes=resumes,
            kept=kept,
            seconds=round(time.monotonic() - began, 1),
        )

    def _earlier_run(self) -> str:
        """Leave a finished run of other rows; return its id."""
        job = self.target.job(self.dest, "--columns", "id", *self.options)
        self._ended(job)
        return str(command.manifest_of(self.dest)["run_id"])

    def _disturbed(self, around: Surroundings) -> int:
        """Run under the fault; return the exit status once every process is gone."""
        injection = self.fault.injection
        more = ("--overwrite",) if self.fault.overwrites else ()
        variables = {**os.environ, **self.target.environment, **injection.environment(around)}
        errors = self.directory / "stderr"
        with open(errors, "wb") as stderr:
            settings = {
                "stdin": subprocess.DEVNULL,
                "stdout": subprocess.DEVNULL,
                "stderr": stderr,
                **injection.start(around),
            }
            process = subprocess.Popen(
                [
                    *(*injection.prefix(), *command.UNLOADER),
                    *self.target.job(self.dest, *self.options, *more),
                ],
                env=variables, start_new_session=True, **settings,
            )  # fmt: skip
        try:
            injection.disturb(process, around)
            process.wait(LONGEST_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            self.log = errors.read_text(errors="replace")
            self._check(False, "the run hangs")
        finally:
            injection.over(around)
        self.log = errors.read_text(errors="replace")
        return process.returncode

    def _check_told(self, status: int) -> None:
        """A run that fails reports the reason in one line, and never shows a traceback."""
        self._check("Traceback" not in self.log, "a traceback")
        # The loader has its own words.
        if status > 0 and status != NO_THREAD_LOCAL and self.fault.told:
            lines = [line for line in self.log.splitlines() if line.startswith("unloader: error:")]
            self._check(len(lines) == 1, f"{len(lines)} errors are told")
            self._check("Next: " in lines[0], "the error does not say what to do")

    def _check_left(self, earlier: str | None) -> None:
        """Nothing unfinished has a final name; an earlier run is whole, or another one is."""
        wrong = outcomes.unfinished_under_final_names(self.dest)
        self._check(not wrong, f"{self.dest} holds {wrong}")
        if earlier is not None:
            self._check((self.dest / outcomes.MANIFEST).exists(), "the earlier run is gone")
        self.done_before |= outcomes.staged_identities(self.dest)

    def _go_on(self, status: int, earlier: str | None) -> int:
        """Resume, or start where nothing was on record; return how often."""
        times = 0
        room = self.dest / outcomes.RUN
        broken = (room / "run.json").exists() and not outcomes.publication_has_begun(self.dest)
        if status not in COMPLETE and self.fault.refused and broken:
            # It reports that, and its files stay for a later resume.
            self._ended(["resume", str(self.dest)], allowed=(self.fault.refused,))
            self._check_left(earlier)
        while status not in COMPLETE and times < MOST_RESUMES:
            times += 1
            more = ("--overwrite",) if earlier is not None else ()
            if self._is_on_record(earlier):
                arguments = ["resume", str(self.dest), *self.fault.resume_options]
            else:
                arguments = self.target.job(self.dest, *self.options, *more)
            status = self._ended(arguments, allowed=(0, 7))
            self._check_left(earlier)
        self._check(status in COMPLETE, f"not complete after {times} resumes")
        return times

    def _is_on_record(self, earlier: str | None) -> bool:
        """Return whether there is something to resume: a run's record, or all of it."""
        if (self.dest / outcomes.RUN / "run.json").exists():
            return True
        path = self.dest / outcomes.MANIFEST
        return path.exists() and command.manifest_of(self.dest)["run_id"] != earlier

    def _check_end(self, expected: outcomes.Outcome, around: Surroundings) -> None:
        """Files and manifest equal an undisturbed run, and the rows equal the table."""
        wrong = outcomes.unfinished_under_final_names(self.dest)
        self._check(not wrong, f"{self.dest} holds {wrong}")
        self._check((self.dest / outcomes.MANIFEST).exists(), "exit 0, and there is no manifest")
        found = outcomes.outcome_of(self.dest, besides=self.target.besides)
        if self.fault.comparable:
            differs = expected.differences(found)
            self._check(not differs, "other than undisturbed: " + "; ".join(differs[:5]))
        form = "parquet" if "parquet" in self.options else "csv"
        wrong = wrong_rows(self.dest, form, self.target.rows)
        self._check(not wrong, f"the table's rows are not there: {wrong}")
        left = sorted(entry.name for entry in self.directory.iterdir() if "unloader" in entry.name)
        self._check(not left, f"beside the destination is left {left}")
        now = outcomes.final_identities(self.dest)
        if self.fault.keeps_units:
            again = [unit for unit, files in self.done_before.items() if now.get(unit) != files]
            self._check(not again, f"finished units were run again: {again}")
        self._check_unsynced(around)

    def _check_unsynced(self, around: Surroundings) -> None:
        """No file of the finished run is one whose sync has failed: its bytes may be lost."""
        if not around.log.exists():
            return
        lines = [line.split(" ", 3) for line in around.log.read_text().splitlines()]
        failed = {file for call, _, file, _ in lines if call == "fsync"}
        found = {path.name: path.stat() for path in self.dest.iterdir()}
        finals = {name: f"{each.st_ino}@{each.st_mtime_ns}" for name, each in found.items()}
        lost = sorted(name for name, file in finals.items() if file in failed)
        self._check(not lost, f"published although a sync of them failed: {lost}")

    def _ended(self, arguments: list[str], *, allowed: tuple[int, ...] = (0,)) -> int:
        """Run a command that is not disturbed; return its exit status."""
        done = command.ended(*arguments, env={**os.environ, **self.target.environment})
        self.log = done.stderr
        self._check(done.returncode in allowed, f"{arguments[0]} ended with {done.returncode}")
        return done.returncode

    def _check(self, holds: bool, what: str) -> None:
        if not holds:
            raise BrokenPromise(
                f"{self.fault.name}, seed {self.seed}, on {self.target.name}: {what}\n"
                f"{self.log[-3000:]}"
            )
