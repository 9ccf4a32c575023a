#!/usr/bin/env python3
"""Kill an unload at random moments, resume it, and compare the files at the end.

    python examples/random_kills.py --source duckdb --rows 20M --kills 300 --seed 1 --json

All runs are compared with an undisturbed run of the reference table. A run is started, killed by
SIGKILL at a random moment, resumed and killed again, until it is complete; then the next run
starts, until `--kills` is reached. A kill hits by chance a worker, the command itself (its workers
have to notice), or the whole group. The moments are spread over the phases: the start, the reading
(evenly over the remaining units), the count, and the publication. Every second run replaces the
finished run of the round before with `--overwrite`.

`unloader resume DEST` follows each kill immediately, while workers of the killed command may still
run. Before the run has recorded its plan there is nothing to resume, and the same `unloader run` is
started again.

With `--source postgres` the run keeps its snapshot (`--keep-snapshot`), and another session changes
rows after every kill. `--source oracle-test` is the test server of this repository, which speaks
Oracle's protocol, as a separate process.

After every kill: no final name has an unfinished file, and an earlier run is whole or has been
replaced. After every run: the files equal the files of the undisturbed run, byte for byte. So does
the manifest, except timings, attempts and seats. Each unit that was finished before a kill still
has the same file (inode, time, size). The script ends with status 1 if any of this does not hold,
and prints the seed, the round and the log of the process.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "tests" / "support")]

from contenders import TABLE  # noqa: E402
from faults import outcomes  # noqa: E402
from kill_figures import KillFigures  # noqa: E402
from kill_sources import Source, source  # noqa: E402
from killed_processes import LONGEST_SECONDS, Attempt, Broken, started  # noqa: E402
from progress import say  # noqa: E402

from unloader.request.settings import parse_count  # noqa: E402

REACH = 0.3
"""Part of the remaining work within which a kill of the reading phase comes: runs end, slowly."""


Files = tuple[outcomes.Identity, ...]
"""The files of one unit."""


@dataclass
class Figures(KillFigures):
    """The counts of a series of kills."""

    needed_a_hand: int = 0
    finished_units_rerun: int = 0


@dataclass(kw_only=True)
class Trial:
    """All rounds."""

    source: Source
    place: Path
    options: argparse.Namespace
    chance: random.Random
    figures: Figures = field(default_factory=Figures)
    expected: outcomes.Outcome | None = None
    seconds: float = 0.0
    """Of the undisturbed run."""
    start_seconds: float = 1.0
    """Until it had its record: it starts up, plans and takes its directory."""
    units: int = 1
    log: Path = Path(os.devnull)

    @property
    def dest(self) -> Path:
        """Where the runs that are killed go."""
        return self.place / "out"

    def job(self, to: Path, *more: str) -> list[str]:
        """Return the command line of a run."""
        options = self.options
        return [
            *("run", self.source.url, "--table", TABLE.lower(), "--to", str(to)),
            *("--format", options.format, "--parallelism", str(options.parallelism)),
            *("--unit-bytes", options.unit_bytes, "--retry-delay", "0.1", "--retries", "5"),
            *self.source.options,
            *more,
        ]

    def start(self, arguments: list[str]) -> Attempt:
        """Start a process in a new process group."""
        self.log = self.place / "log.txt"
        return started(arguments, self.log, {**os.environ, **self.source.environment})

    def reference(self) -> None:
        """Do an undisturbed run and remember its files."""
        to = self.place / "undisturbed"
        shutil.rmtree(to, ignore_errors=True)
        attempt = self.start(self.job(to))
        record = to / outcomes.RUN / "run.json"
        self._wait(attempt, record.exists, time.monotonic() + LONGEST_SECONDS)
        self.start_seconds = time.monotonic() - attempt.began
        status = attempt.process.wait(LONGEST_SECONDS)
        if status:
            raise Broken(f"the undisturbed run ended with status {status}")
        self.seconds = time.monotonic() - attempt.began
        self.expected = outcomes.outcome_of(to, besides=self.source.besides)
        self.units = len(outcomes.final_identities(to))
        shutil.rmtree(to)
        say(f"undisturbed: {self.seconds:.1f} s, {self.units} units")

    def go(self) -> None:
        """Do rounds until there were enough kills."""
        while self.figures.killed < self.options.kills:
            if self.expected is None or self.source.changes:
                self.reference()
            overwrite = self.figures.rounds % 2 == 1
            if not overwrite:
                shutil.rmtree(self.dest, ignore_errors=True)
            self.round(overwrite)
            self.figures.rounds += 1
            figures = self.figures
            say(
                f"round {figures.rounds}: {figures.killed} kills, {figures.resumes} resumes, "
                f"{figures.finished_units_kept} finished units kept"
            )

    def round(self, overwrite: bool) -> None:
        """Do one run, killed until it is complete."""
        earlier = self._final_run() if overwrite else None
        job = self.job(self.dest, *(("--overwrite",) if overwrite else ()))
        done: dict[str, Files] = {}
        attempt, is_resume = self.start(job), False
        while not self._ends(attempt, is_resume):
            self.check_between(earlier)
            done |= outcomes.staged_identities(self.dest)
            is_resume = self._is_on_record(earlier)
            if is_resume:
                # Only then: a run that starts again takes a new snapshot, and sees the changes.
                self.source.change(self.chance)
                self.figures.resumes += 1
                attempt = self.start(["resume", str(self.dest)])
            else:
                self.figures.starts += 1
                attempt = self.start(job)
        self.check_end(earlier, done)

    def _ends(self, attempt: Attempt, is_resume: bool) -> bool:
        """Kill a process, or not; return whether the run is complete."""
        while self.figures.killed < self.options.kills:
            phase, wait = self._moment(attempt)
            wait()
            who = self.chance.choice(("worker", "command", "group"))
            if not attempt.kill(who, self.chance):
                if attempt.process.poll() is not None:
                    break
                continue  # no worker has started yet, or all have ended
            self.figures.kills[f"who: {who}"] += 1
            self.figures.kills[f"when: {phase}"] += 1
            if who != "worker":
                return False
        try:
            status = attempt.process.wait(LONGEST_SECONDS)
        except subprocess.TimeoutExpired:
            attempt.kill("group", self.chance)
            raise Broken("a process hangs") from None
        if status == 7:
            self.figures.resumed_after_partial += 1
            return False
        if status < 0:
            return False
        if status:
            self.figures.needed_a_hand += 1
            raise Broken(f"{'resume' if is_resume else 'run'} ended with status {status}")
        if not is_resume:
            # The first run found a cold cache, or a machine with other work.
            self.seconds = min(self.seconds, time.monotonic() - attempt.began)
            self.start_seconds = min(self.start_seconds, self.seconds / 2)
        return True

    def _moment(self, attempt: Attempt) -> tuple[str, Callable[[], None]]:
        """Choose when the next kill comes: the name of the phase, and what waits for it."""
        left = 1 - len(outcomes.finished_units(self.dest)) / self.units
        phases = {"start": 2, "reading": 14 if left > 0 else 0, "count": 1, "publication": 1}
        (phase,) = self.chance.choices(list(phases), list(phases.values()))
        draw = self.chance.random()
        seen = {"count": self._all_staged, "publication": self._publishes}.get(phase)
        if seen is not None and not seen():
            longest = 0.3 if phase == "count" else 0.03

            def after() -> None:
                self._wait(attempt, seen, time.monotonic() + LONGEST_SECONDS)
                self._wait(attempt, lambda: False, time.monotonic() + draw * longest)

            return phase, after
        if phase == "reading":
            end = time.monotonic() + self.start_seconds + draw * REACH * left * self.seconds
        elif phase == "start":
            end = attempt.began + draw * self.start_seconds
        else:
            # The work is already done: the process has only to find its result and continue.
            end = attempt.began + draw * 3 * self.start_seconds
        return phase, lambda: self._wait(attempt, lambda: False, end)

    def _wait(self, attempt: Attempt, seen: Callable[[], bool], end: float) -> None:
        while time.monotonic() < end and not seen() and attempt.process.poll() is None:
            time.sleep(0.001)

    def _all_staged(self) -> bool:
        time.sleep(0.01)
        return len(outcomes.finished_units(self.dest)) >= self.units

    def _publishes(self) -> bool:
        return outcomes.publication_has_begun(self.dest)

    def _final_run(self) -> str | None:
        try:
            return str(json.loads((self.dest / outcomes.MANIFEST).read_bytes())["run_id"])
        except FileNotFoundError:
            return None

    def _is_on_record(self, earlier: str | None) -> bool:
        """Return whether there is something to resume: a record of the run, or all of it."""
        begun = (self.dest / outcomes.RUN / "run.json").exists()
        return begun or self._final_run() not in (None, earlier)

    def check_between(self, earlier: str | None) -> None:
        """Check the files with final names after a kill."""
        wrong = outcomes.unfinished_under_final_names(self.dest)
        if wrong:
            raise Broken(f"after a kill, {self.dest} has {wrong}")
        if earlier is not None and self._final_run() is None:
            raise Broken(f"after a kill, the earlier run {earlier} is missing and was not replaced")

    def check_end(self, earlier: str | None, done: Mapping[str, Files]) -> None:
        """Check a run that ended with 0."""
        wrong = outcomes.unfinished_under_final_names(self.dest)
        if wrong or self._final_run() in (None, earlier):
            raise Broken(f"the run ended with 0 and left {wrong or 'no manifest'}")
        assert self.expected is not None
        found = outcomes.outcome_of(self.dest, besides=self.source.besides)
        differs = self.expected.differences(found)
        if differs:
            raise Broken("different from the undisturbed run: " + "; ".join(differs[:5]))
        left = [entry.name for entry in self.dest.parent.iterdir() if ".unloader-" in entry.name]
        if left:
            raise Broken(f"the run left {left} next to its directory")
        now = outcomes.final_identities(self.dest)
        rerun = sorted(unit for unit, files in done.items() if now.get(unit) != files)
        self.figures.finished_units_kept += len(done) - len(rerun)
        self.figures.finished_units_rerun += len(rerun)
        if rerun:
            raise Broken(f"{len(rerun)} finished units were run again: {', '.join(rerun[:5])}")


def main() -> None:
    """Kill, resume and compare; print the figures."""
    options = parsed()
    place = Path(tempfile.mkdtemp(prefix="unloader-kills-", dir=options.dir)).resolve()
    place.chmod(0o755)  # run by root, PostgreSQL has a separate user
    began = time.monotonic()
    broken = ""
    try:
        with source(place, options) as database:
            trial = Trial(
                source=database, place=place, options=options, chance=random.Random(options.seed)
            )
            try:
                trial.go()
            except Broken as error:
                broken = str(error)
                log = trial.log.read_text(errors="replace")[-4000:]
                say(f"seed {options.seed}, round {trial.figures.rounds + 1}: {broken}\n{log}")
    finally:
        if broken and options.keep:
            say(f"kept: {place}")
        else:
            shutil.rmtree(place, ignore_errors=True)
    report = reported(trial, options, broken, time.monotonic() - began)
    print(json.dumps(report, indent=1) if options.json else "\n".join(lines(report)))
    sys.exit(1 if broken else 0)


def parsed() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--source", choices=["duckdb", "postgres", "oracle-test"], default="duckdb")
    parser.add_argument("--rows", type=parse_count, default=parse_count("20M"), help="default: 20M")
    parser.add_argument("--kills", type=int, default=300, help="default: 300")
    parser.add_argument("--seed", type=int, default=1, help="default: 1")
    parser.add_argument("--format", choices=["csv", "parquet"], default="csv")
    parser.add_argument("--parallelism", type=int, default=2, help="default: 2")
    parser.add_argument("--unit-bytes", default="32MiB", help="default: 32MiB")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--dir", type=Path, help="make the working directory here")
    parser.add_argument("--database", type=Path, help="build the table in this DuckDB file, once")
    parser.add_argument(
        "--keep", action="store_true", help="keep all files in it if a promise breaks"
    )
    options = parser.parse_args()
    if options.rows < 1 or options.kills < 1:
        parser.error("--rows and --kills must be 1 or more")
    return options


def reported(
    trial: Trial, options: argparse.Namespace, broken: str, seconds: float
) -> dict[str, Any]:
    """Return the figures as one JSON object."""
    figures = trial.figures
    return {
        "broken": broken,
        "source": options.source,
        "rows": options.rows,
        "units": trial.units,
        "seed": options.seed,
        **figures.told(),
        "resumes_that_needed_a_hand": figures.needed_a_hand,
        "finished_units_rerun": figures.finished_units_rerun,
        "undisturbed_seconds": round(trial.seconds, 1),
        "seconds": round(seconds, 1),
    }


def lines(report: dict[str, Any]) -> list[str]:
    """Return the report as text."""
    return [f"{name:<28}{value}" for name, value in report.items()]


if __name__ == "__main__":
    main()
