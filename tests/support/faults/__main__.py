"""`python -m faults`: every fault of the catalogue, kills at many seeds; `tests/faults.sh` starts it.

Prints a line for each trial. The exit status is 1 if a promise did not hold; the line then has the
fault, the seed and the command's output.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

from faults.catalog import FAULTS, Fault
from faults.injections import Libraries
from faults.servers import opened
from faults.source_faults import source_faults
from faults.trial import BrokenPromise, Trials


def main() -> None:
    """Try all requested faults."""
    options = parsed()
    chosen = [fault for fault in (*FAULTS, *source_faults()) if fnmatch(fault.name, options.only)]
    if options.list:
        for fault in chosen:
            print(f"{fault.name}  (exit {', '.join(map(str, sorted(fault.statuses)))})")
        return
    counts: Counter[str] = Counter()
    with (
        tempfile.TemporaryDirectory(prefix="unloader-faults-", dir=options.dir) as name,
        ExitStack() as servers,
    ):
        place = Path(name)
        place.chmod(0o755)
        libraries = Libraries.build(place)

        @cache
        def trials_on(target: str) -> Trials:
            made = servers.enter_context(opened(target, place))
            return Trials(target=made, place=place, libraries=libraries)

        for fault, seed in tries(chosen, options):
            if why := fault.injection.impossible():
                counts["skipped"] += 1
                print(f"skipped {fault.name}: {why}", flush=True)
                continue
            try:
                report = trials_on(fault.target).run(fault, seed)
            except BrokenPromise as broken:
                counts["broken"] += 1
                print(f"BROKEN {broken}", flush=True)
                continue
            counts["held"] += 1
            counts["resumes"] += report.resumes
            counts["units kept"] += report.kept
            print(
                f"held   {report.fault}, seed {seed}: exit {report.status}, "
                f"{report.resumes} resumes, {report.kept} units kept, {report.seconds} s",
                flush=True,
            )
    print(", ".join(f"{count} {what}" for what, count in counts.items()))
    sys.exit(1 if counts["broken"] else 0)


def parsed() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(prog="tests/faults.sh", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="of the kills; default: 100")
    parser.add_argument("--seed", type=int, default=1, help="the first of them; default: 1")
    parser.add_argument("--only", default="*", metavar="GLOB", help="faults of these names")
    parser.add_argument("--list", action="store_true", help="name the faults and do nothing")
    parser.add_argument("--dir", type=Path, help="make the working directory here")
    return parser.parse_args()


def tries(faults: list[Fault], options: argparse.Namespace) -> Iterator[tuple[Fault, int]]:
    """Yield each fault with its seeds; faults at random moments share the given seeds."""
    seeded = [fault for fault in faults if fault.seeded]
    yield from ((fault, options.seed) for fault in faults if not fault.seeded)
    for number in range(options.seeds if seeded else 0):
        yield seeded[number % len(seeded)], options.seed + number


if __name__ == "__main__":
    main()
