#!/usr/bin/env python3
"""Kill runs into an object store at random moments, and look at the store after each kill.

    python examples/store_kills.py --kills 50 --seed 1 --json
    python examples/store_kills.py --kills 50 --place 's3://bucket/kills?endpoint=http://127.0.0.1:7070'

Without `--place` the script starts moto's server. With it the credentials come from the
environment, and all objects in the place are removed. The moments are spread evenly over the whole
length of a command, from the start of its process to the end of its publication. The command, or
all its processes, gets SIGKILL. The next command is the same run, `resume` or `clean`, and may be
killed, too. After each kill every object under a final name must have the same bytes as in a run
into a directory. Where there is a manifest, all objects must exist. After a command that was not
killed, no further object and no upload may exist. The store is read by boto3, not by unloader's
client. The script ends with status 1, and prints the log, if any of this does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import boto3
import duckdb
from botocore.config import Config

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "tests" / "support")]

from object_stores.s3_server import CREDENTIALS, s3_server  # noqa: E402

from unloader.request.settings import parse_count  # noqa: E402
from writers.objects.location import Location, s3_endpoint  # noqa: E402

MANIFEST = "_manifest.json"
LOCK = "_run/lock.json"
LONGEST_SECONDS = 600.0
NOTHING_THERE = ("has no interrupted run", "is empty. Next: give the place")
"""What `resume` and `clean` say where a run was killed before it had left anything."""


class Broken(Exception):
    """A promise that was not kept."""


class Place:
    """A prefix of the store, as its own client sees it."""

    def __init__(self, location: Location) -> None:
        self.location = location
        self._client: Any = boto3.client(
            "s3",
            endpoint_url=s3_endpoint(location) or None,
            region_name=location.option("region") or "us-east-1",
            # Some servers give an object in parts another checksum than the checksum of its bytes.
            config=Config(response_checksum_validation="when_required"),
        )

    def objects(self) -> dict[str, bytes]:
        """Return the contents of the objects, by names within the place."""
        bucket, prefix = self.location.bucket, self.location.prefix
        found = {}
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        for key in [each["Key"] for page in pages for each in page.get("Contents", ())]:
            # The workers of a command that was killed alone may still be ending.
            with suppress(self._client.exceptions.NoSuchKey):
                body = self._client.get_object(Bucket=bucket, Key=key)["Body"].read()
                found[key.removeprefix(prefix)] = body
        return found

    def uploads(self) -> list[tuple[str, str]]:
        """Return key and id of each upload that was neither completed nor aborted."""
        answer = self._client.list_multipart_uploads(
            Bucket=self.location.bucket, Prefix=self.location.prefix
        )
        return [
            (each["Key"], each["UploadId"])
            for each in answer.get("Uploads") or ()
            if each["Key"].startswith(self.location.prefix)
        ]

    def clear(self) -> None:
        """Remove all of it."""
        bucket = self.location.bucket
        for name in self.objects():
            self._client.delete_object(Bucket=bucket, Key=self.location.prefix + name)
        for key, upload in self.uploads():
            self._client.abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload)


class Trial:
    """Commands that are killed, and their counts."""

    def __init__(self, folder: Path, place: Place, options: argparse.Namespace) -> None:
        self.place, self.options, self.log = place, options, folder / "log"
        self.chance = random.Random(options.seed)
        self.source = f"duckdb://{_table(folder / 't.duckdb', options.rows)}"
        self.counts: Counter[str] = Counter()
        self.kills = 0
        out = folder / "out"
        self._ended(self._start(self._run(str(out))))
        self.expected = {each.name: each.read_bytes() for each in out.iterdir() if each.is_file()}
        del self.expected[MANIFEST]
        self.seconds = {"clean": 1.0}
        """How long each command takes, as far as is known."""
        began = time.monotonic()
        self._ended(self._start(self._run()))
        self.seconds["run"] = self.seconds["resume"] = time.monotonic() - began
        self._check_whole("run")

    def go(self) -> None:
        """Do rounds until there were enough kills; the last one is finished."""
        while self.kills < self.options.kills:
            if self.chance.random() < 0.5:
                self.place.clear()
            verb = "run"
            # Whether a kill can be put right is seen where what follows it is let be.
            may_be = True
            while self._is_killed(verb, may_be=may_be):
                self._check_between()
                may_be = self.chance.random() < 0.5
                (verb,) = self.chance.choices(("run", "resume", "clean"), (3, 2, 1))
            self.counts["rounds"] += 1

    def _is_killed(self, verb: str, *, may_be: bool) -> bool:
        """Begin a command and kill it; if it ends before that, check the store and return False."""
        process = self._start(self._arguments(verb))
        began = time.monotonic()
        may_be = may_be and self.kills < self.options.kills
        if may_be:
            moment = self.chance.uniform(0.0, 1.05 * self.seconds[verb])
            with suppress(subprocess.TimeoutExpired):
                process.wait(moment)
        if may_be and process.poll() is None:
            self._kill(process)
            self.kills += 1
            self.counts[f"killed: {verb}"] += 1
            return True
        if not self._ended(process, may_find_nothing=verb != "run"):
            self.counts[f"nothing there: {verb}"] += 1
            if verb == "clean":
                self._check_cleaned()
            return self._is_killed("run", may_be=may_be)
        self.seconds[verb] = time.monotonic() - began
        self.counts[f"ended: {verb}"] += 1
        if verb == "clean":
            self._check_cleaned()
        else:
            self._check_whole(verb)
        return False

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        who = self.chance.choice(("command", "group"))
        (os.killpg if who == "group" else os.kill)(process.pid, signal.SIGKILL)
        process.wait()
        self.counts[f"who: {who}"] += 1

    def _check_between(self) -> None:
        """Check the objects with final names after a kill."""
        there = self.place.objects()
        files = self._files(there)
        if MANIFEST in there:
            self.counts["killed with a manifest there"] += 1
        elif files:
            self.counts["killed with some objects there"] += 1
        if self.place.uploads():
            self.counts["killed with uploads there"] += 1
        self._check(files.items() <= self.expected.items(), f"not whole: {_sizes(files)}")
        self._check(
            MANIFEST not in there or files == self.expected, f"a manifest, and {_sizes(files)}"
        )

    def _check_whole(self, verb: str) -> None:
        there = self.place.objects()
        if verb == "resume" and there.pop(LOCK, None):
            # Of a run that died before it had a record: an earlier one is finished, and resume has
            # nothing to do.
            self.counts["lock of a dead run left by resume"] += 1
        self._check(self._files(there) == self.expected, f"other objects: {_sizes(there)}")
        self._check(MANIFEST in there, "no manifest")
        self._check_clear(there)

    def _check_cleaned(self) -> None:
        """Check that a run in publication is complete, and that other runs have left nothing."""
        there = self.place.objects()
        wanted = self.expected if MANIFEST in there else {}
        self._check(self._files(there) == wanted, f"after clean: {_sizes(there)}")
        self._check_clear(there)

    def _check_clear(self, there: dict[str, bytes]) -> None:
        left = [name for name in there if name not in self.expected and name != MANIFEST]
        self._check(not left, f"left: {left}")
        uploads = self.place.uploads()
        self._check(not uploads, f"uploads left: {uploads}")

    def _check(self, is_so: bool, otherwise: str) -> None:
        if not is_so:
            raise Broken(f"after {self.kills} kills: {otherwise}")

    def _files(self, there: dict[str, bytes]) -> dict[str, bytes]:
        return {name: data for name, data in there.items() if name[0] != "_"}

    def _arguments(self, verb: str) -> list[str]:
        return self._run() if verb == "run" else [verb, str(self.place.location)]

    def _run(self, to: str = "") -> list[str]:
        return [
            *("run", self.source, "--table", "t", "--to", to or str(self.place.location)),
            *("--unit-bytes", "16MB", "--parallelism", "2", "--overwrite", "--quiet"),
        ]

    def _start(self, arguments: list[str]) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            log.write(f"$ {' '.join(arguments)}\n".encode())
            log.flush()
            return subprocess.Popen(
                [sys.executable, "-m", "unloader", *arguments],
                cwd=CHECKOUT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )

    def _ended(self, process: subprocess.Popen[bytes], *, may_find_nothing: bool = False) -> bool:
        """Wait for a command; return whether it had something to do."""
        try:
            status = process.wait(LONGEST_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise Broken("a command hangs") from None
        last = self.log.read_text().splitlines()[-1]
        if status and may_find_nothing and any(each in last for each in NOTHING_THERE):
            return False
        self._check(status == 0, f"a command ended with status {status}")
        return True


def _table(path: Path, rows: int) -> Path:
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT i, 'text that makes the rows of this table longer ' || i AS "
            f"v, i * 1.5 AS d FROM range({rows}) r(i)"
        )
    return path


def _sizes(found: dict[str, bytes]) -> dict[str, int]:
    return {name: len(data) for name, data in found.items()}


def main() -> None:
    """Kill, go on and compare; print the counts."""
    options = parsed()
    broken, counts, kills = "", Counter[str](), 0
    began = time.monotonic()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if not options.place:
            os.environ.update(CREDENTIALS)
            options.place = stack.enter_context(s3_server()).place("kills")
        place = Place(Location.parse(options.place))
        place.clear()
        stack.callback(place.clear)
        trial = Trial(folder, place, options)
        try:
            trial.go()
        except Broken as error:
            broken = str(error)
            print(f"{broken}\n{trial.log.read_text(errors='replace')[-4000:]}", file=sys.stderr)
        counts, kills = trial.counts, trial.kills
    report = {
        "broken": broken,
        "place": options.place,
        "rows": options.rows,
        "files": len(trial.expected),
        "seed": options.seed,
        "kills": kills,
        "counts": dict(sorted(counts.items())),
        "seconds": round(time.monotonic() - began, 1),
    }
    lines = (f"{name:<12}{value}" for name, value in report.items())
    print(json.dumps(report, indent=1) if options.json else "\n".join(lines))
    sys.exit(1 if broken else 0)


def parsed() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--place", default="", help="an S3 prefix; all objects in it are removed")
    parser.add_argument("--rows", type=parse_count, default=parse_count("400k"), help="400k")
    parser.add_argument("--kills", type=int, default=100, help="default: 100")
    parser.add_argument("--seed", type=int, default=1, help="default: 1")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_args()


if __name__ == "__main__":
    main()
