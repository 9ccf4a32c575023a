#!/usr/bin/env python3
"""Kill runs over many tables at random moments, resume them, and compare the files.

    python examples/random_table_kills.py --source postgres --kills 100 --seed 1 --json

`bench_schema.py` makes the tables, small ones. A run over all of them is started, killed by
SIGKILL, resumed and killed again, until it is complete; then the next run starts, until `--kills`
is reached. By chance a run publishes each table when it is done or all at the end, writes one
output or two from one scan (CSV, and Parquet of all or some rows), or replaces the run before it.

A kill hits by chance a worker, the command itself (its workers have to notice), or the whole group.
It comes at a random moment, or just before the n-th call of a process that changes a file below the
destination (create, write, fsync, rename, mkdir, unlink), by the library of the tests' faults. An
undisturbed run gives the number of these calls.

`unloader resume` follows each kill immediately. Before the run has recorded its plan there is
nothing to resume, and the same `unloader run` is started again.

In PostgreSQL and the Oracle test server a writer commits transfers between the tables all the time.
PostgreSQL's snapshot is kept (`--keep-snapshot`), Oracle's is an SCN.

After every kill: a table with a manifest has exactly the files of the manifest, with its number of
rows, read by pyarrow and Python's csv, and is never written again. The manifest of the run exists
only if all tables are complete. After every run: all tables are one state, row by row and in the
sum of their balances, as DuckDB (and for Oracle the server itself, at the SCN) reads them. The
Parquet output has the rows of the CSV output, or the rows that its filter selects. Units that were
finished before a kill still have the same files. Nothing else is left. The script ends with
status 1 if any of this does not hold, and prints the seed, the round and the log of the process.
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
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "tests" / "support")]

from faults import outcomes  # noqa: E402
from killed_processes import LONGEST_SECONDS, Attempt, Broken, started  # noqa: E402
from progress import say  # noqa: E402
from schema_sources import Schema  # noqa: E402
from table_kill_figures import Figures, Kind, reported  # noqa: E402
from table_kill_sources import Database, database, state_is_one  # noqa: E402
from table_outcomes import Tables, rows_of, wrong_with  # noqa: E402

REACHES = (0.05, 0.3, 0.9)
"""Part of the calls, or of the time, of an undisturbed run, within which a kill comes: what a
resumed run has left to do is less, and its end should be met, too."""


@dataclass(kw_only=True)
class Trial:
    """All rounds."""

    database: Database
    place: Path
    options: argparse.Namespace
    chance: random.Random
    library: Any
    figures: Figures = field(default_factory=Figures)
    seconds: dict[bool, float] = field(default_factory=dict)
    """Of an undisturbed run, with and without routes."""
    calls: dict[tuple[bool, str], int] = field(default_factory=dict)
    """The most of a process of it, with and without routes, of the command and of a worker."""
    kind: Kind = field(default=Kind(publish="table", routes=False, overwrite=False))
    log: Path = Path(os.devnull)
    planned: int | None = None
    """The call before which the next process is killed, with --every-call."""
    how: str = ""
    who: str = ""

    @property
    def schema(self) -> Schema:
        """The tables."""
        return self.database.schema

    @property
    def home(self) -> Path:
        """The directory of the run."""
        return self.place / "out"

    @property
    def tables(self) -> Tables:
        """The directories of all tables and outputs."""
        return Tables(home=self.home, lake=self.place / "out-lake" if self.kind.routes else None)

    def job(self) -> list[str]:
        """Return the command line of a run."""
        words = ["run", self.schema.url, "--table", self.schema.pattern, "--unit-bytes", "64KiB"]
        words += ["--parallelism", "2", "--retry-delay", "0.1", "--publish", self.kind.publish]
        words += self.database.options
        to = f"{self.home}/{{schema}}.{{table}}"
        if self.kind.routes:
            lake = f"{self.place}/out-lake/{{schema}}.{{table}}"
            words += ["--route", f"text:to={to}"]
            condition = ',filter="id % 3 = 0"' if self.database.is_filtered else ""
            words += ["--route", f"lake:to={lake},format=parquet{condition}"]
        else:
            words += ["--to", to]
        return [*words, *(["--overwrite"] if self.kind.overwrite else [])]

    def start(self, arguments: list[str], variables: dict[str, str]) -> Attempt:
        """Start a process in a new process group."""
        self.log = self.place / "log.txt"
        return started(arguments, self.log, {**self.environment, **variables})

    @property
    def environment(self) -> dict[str, str]:
        """Of all processes."""
        state = {"XDG_STATE_HOME": str(self.place / "state")}
        return {**os.environ, **self.database.environment, **state}

    def calls_of(self, who: str, do: str, *, after: int = 0) -> dict[str, str]:
        """Return the variables under which calls of a process are noted, or it is killed."""
        more = {"who": who, "log": self.place / "calls"}
        return dict(
            self.library.environment("any", do, files=str(self.home), after=after, more=more)
        )

    def measure(self) -> None:
        """Do two undisturbed runs of a kind, to know how long they take and how many calls."""
        routes = self.kind.routes
        for who in ("worker", "parent"):
            self.remove()
            noted = self.place / "calls"
            noted.unlink(missing_ok=True)
            attempt = self.start(self.job(), self.calls_of(who, "noted"))
            if attempt.process.wait(LONGEST_SECONDS):
                raise Broken("an undisturbed run failed")
            self.seconds[routes] = time.monotonic() - attempt.began
            lines = len(noted.read_bytes().splitlines()) if noted.exists() else 0
            noted.unlink(missing_ok=True)
            self.calls[routes, who] = lines // (2 if who == "worker" else 1)
        say(f"undisturbed: {self.seconds[routes]:.1f} s, {self.calls}")
        self.remove()

    def remove(self) -> None:
        """Remove all that runs have left."""
        shutil.rmtree(self.home, ignore_errors=True)
        shutil.rmtree(self.place / "out-lake", ignore_errors=True)

    def go(self) -> None:
        """Do rounds until there were enough kills, or until each call has had its own."""
        if self.options.every_call:
            self.go_through_calls()
            return
        while self.figures.killed < self.options.kills:
            before, overwrite = self.kind, self.home.exists() and self.chance.random() < 0.3
            self.kind = Kind(
                publish=self.chance.choice(("table", "run")),
                # The replaced run has the same outputs.
                routes=before.routes if overwrite else self.chance.random() < 0.4,
                overwrite=overwrite,
            )
            if self.kind.routes not in self.seconds:
                self.measure()
            if not self.kind.overwrite:
                self.remove()
            self.round()
            self.figures.rounds += 1
            say(f"round {self.figures.rounds}: {self.figures.killed} kills, {self.kind}")

    def go_through_calls(self) -> None:
        """Kill the command before each of its calls, or each n-th, and let it go on undisturbed."""
        self.measure()
        last = self.calls[False, "parent"]
        for publish, overwrite in product(("table", "run"), (False, True)):
            for after in range(0, last + 1, self.options.every_call):
                if not (overwrite and self.tables.run_id()):
                    self.remove()
                self.kind = Kind(
                    publish=publish, routes=False, overwrite=overwrite and self.home.exists()
                )
                self.planned = after
                self.round()
                self.figures.rounds += 1
            say(f"{self.figures.killed} kills before calls, {self.kind}")

    def round(self) -> None:
        """Do one run, killed until it is complete."""
        earlier = self.tables.run_ids()
        job = self.job()
        done: dict[str, Any] = {}
        published: dict[Path, Any] = {}
        attempt, arguments = self._begin(job)
        while not self._ends(attempt):
            published |= self._check_between(earlier, published)
            done |= self.tables.staged()
            if self.is_on_record(earlier):
                self.figures.resumes += 1
                arguments = ["resume", str(self.home)]
            else:
                if published:
                    raise Broken(
                        f"{len(published)} tables are published, but the record of the run is "
                        "missing"
                    )
                self.figures.starts += 1
                done.clear()
                arguments = job
            attempt, arguments = self._begin(arguments)
        self._check_end(earlier, done, published)

    def _begin(self, arguments: list[str]) -> tuple[Attempt, list[str]]:
        """Start a process, with a call before which it is killed or not."""
        self.how = "moment"
        self.who = self.chance.choice(("worker", "parent", "group"))
        variables: dict[str, str] = {}
        (self.place / "calls").unlink(missing_ok=True)
        if self.options.every_call:
            self.how, self.who = "call", "parent"
            if self.planned is None:
                self.how = ""
            else:
                variables = self.calls_of(self.who, "killed", after=self.planned)
            self.planned = None
        elif self.figures.killed < self.options.kills and self.chance.random() < 0.6:
            self.how = "call"
            self.who = self.chance.choice(("worker", "parent", "parent"))
            most = self.calls[self.kind.routes, self.who]
            after = int(most * self.chance.choice(REACHES) * self.chance.random())
            variables = self.calls_of(self.who, "killed", after=after)
        return self.start(arguments, variables), arguments

    def _ends(self, attempt: Attempt) -> bool:
        """Kill a process, or not; return whether the run is complete."""
        if self.figures.killed < self.options.kills and self.how == "moment":
            reach = self.chance.choice(REACHES) * self.chance.random()
            end = attempt.began + 0.5 + reach * self.seconds[self.kind.routes]
            who, killed = {"parent": "command"}.get(self.who, self.who), False
            while not killed and attempt.process.poll() is None:
                time.sleep(0.001)
                # There may be no worker yet.
                killed = time.monotonic() > end and attempt.kill(who, self.chance)
            if killed:
                self._count()
                if who != "worker":
                    return False
            else:
                self.figures.not_reached += 1
        try:
            status = attempt.process.wait(LONGEST_SECONDS)
        except subprocess.TimeoutExpired:
            attempt.kill("group", self.chance)
            raise Broken("a process hangs") from None
        if self.how == "call":
            noted = self.place / "calls"
            times = len(noted.read_bytes().splitlines()) if noted.exists() else 0
            self.figures.not_reached += not times
            for _ in range(times):
                self._count()
            if status in (4, 6, 7) and times and self.who == "worker":
                # Each worker was killed that was to write this unit.
                status = 7
        if status == 7:
            self.figures.resumed_after_partial += 1
        if status < 0 or status == 7:
            return False
        if status:
            raise Broken(f"a process ended with status {status}")
        return True

    def _count(self) -> None:
        kills, kind = self.figures.kills, self.kind
        kills[f"who: {self.who}"] += 1
        kills[f"how: {self.how}"] += 1
        kills[f"publish: {kind.publish}"] += 1
        kills["outputs: two" if kind.routes else "outputs: one"] += 1
        kills["replacing" if kind.overwrite else "new"] += 1

    def is_on_record(self, earlier: dict[Path, str]) -> bool:
        """Return whether there is something to resume: a record of the run, or all of it."""
        begun = (self.home / outcomes.RUN / "run.json").exists()
        return begun or self.tables.run_id() not in ("", earlier.get(self.home, ""))

    def _check_between(self, earlier: dict[Path, str], known: dict[Path, Any]) -> dict[Path, Any]:
        """Check the published tables after a kill; return them."""
        found = {}
        now = self.tables.run_ids()
        for directory in self.tables.directories():
            if wrong := wrong_with(directory):
                raise Broken(f"after a kill, {directory} has {wrong}")
            if directory in earlier and directory not in now:
                raise Broken(f"after a kill, the earlier run of {directory} is missing")
            if directory in now and now[directory] != earlier.get(directory):
                rows_of(directory)
                found[directory] = outcomes.final_identities(directory)
        for directory, files in known.items():
            if found.get(directory) != files:
                raise Broken(f"{directory} was published, but was written again or is missing")
        self.figures.tables_published_at_kills += len(found)
        self.figures.kills_between_tables += 0 < len(found) < len(self.schema.tables)
        if now.get(self.home) not in (None, earlier.get(self.home)):
            missing = [each for each in self.tables.directories() if each not in found]
            if missing:
                raise Broken(f"the manifest of the run exists, but {missing} are not published")
        return found

    def _check_end(
        self, earlier: dict[Path, str], done: dict[str, Any], published: dict[Path, Any]
    ) -> None:
        """Check a run that ended with 0."""
        found = self._check_between(earlier, published)
        now = self.tables.run_ids()
        ids = {now.get(each) for each in (self.home, *found)}
        if len(ids) != 1 or None in ids:
            raise Broken(f"the tables belong to the runs {ids}")
        if left := self.tables.left():
            raise Broken(f"the run left {left}")
        compared = state_is_one(self.database, self.tables)
        self.figures.rows_compared += compared
        final = self.tables.final()
        rerun = sorted(unit for unit, files in done.items() if final.get(unit) != files)
        self.figures.finished_units_kept += len(done) - len(rerun)
        if rerun:
            raise Broken(f"{len(rerun)} finished units were run again: {', '.join(rerun[:5])}")
        if self.figures.rounds % 4:
            return
        verified = subprocess.run(
            [sys.executable, "-m", "unloader", "verify", str(self.home), "--strict", "--quiet"],
            cwd=CHECKOUT, env=self.environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if verified.returncode:
            raise Broken(f"unloader verify: {verified.stderr}")


def main() -> None:
    """Kill, resume and compare; print the figures."""
    options = parsed()
    place = Path(tempfile.mkdtemp(prefix="unloader-kills-", dir=options.dir)).resolve()
    place.chmod(0o755)  # run by root, PostgreSQL has a separate user
    began = time.monotonic()
    broken = ""
    from processes.breaking import FaultyCalls

    library = FaultyCalls.build(place)
    try:
        with database(options, place) as made:
            trial = Trial(
                database=made, place=place, options=options, library=library,
                chance=random.Random(options.seed),
            )  # fmt: skip
            try:
                trial.go()
            except (Broken, SystemExit) as error:
                broken = str(error) or "an error"
                log = trial.log.read_text(errors="replace")[-4000:]
                number = trial.figures.rounds + 1
                say(f"seed {options.seed}, round {number}, {trial.kind}: {broken}\n{log}")
                if options.keep and trial.home.exists():
                    shutil.copytree(trial.home, options.keep, symlinks=True)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    told = (options, broken, trial.database.transfers, time.monotonic() - began)
    report = reported(trial.figures, *told)
    lines = [f"{name:<28}{value}" for name, value in report.items()]
    print(json.dumps(report, indent=1) if options.json else "\n".join(lines))
    sys.exit(1 if broken else 0)


def parsed() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--source", choices=["duckdb", "postgres", "oracle-test"], default="duckdb")
    parser.add_argument("--tables", type=int, default=12, help="default: 12")
    parser.add_argument("--big-tables", type=int, default=2, help="of these; default: 2")
    parser.add_argument("--big-rows", type=int, default=4_000, help="default: 4000")
    parser.add_argument("--small-rows", type=int, default=300, help="at most; default: 300")
    parser.add_argument("--kills", type=int, default=100, help="default: 100")
    parser.add_argument("--seed", type=int, default=1, help="default: 1")
    parser.add_argument(
        "--every-call", type=int, default=0, metavar="N",
        help="kill the command before its first call, the N-th call after that, and so on, once "
"for each; for each way to publish, into new directories and old ones",
    )  # fmt: skip
    parser.add_argument("--pause", type=float, default=0.05, help="of the writer; default: 0.05 s")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--dir", type=Path, help="make the working directory here")
    parser.add_argument(
        "--keep", type=Path, help="copy the destination into this directory if a promise breaks"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
