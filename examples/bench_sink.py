#!/usr/bin/env python3
"""How busy the overlapped writer keeps its destination, beside dd, and its CPU cost.

    python examples/bench_sink.py --size 512 --runs 5
    python examples/bench_sink.py --directory /mnt/slow --size 256

Speed, as wall time of dd over ours for the same number of bytes in blocks of 4 MiB, both until
the destination has them:

  pipe         CSV is encoded while it is written into a named pipe that a third process drains
               at --rate; a bubble in the stream is time lost for good
  pipe_zstd    the same with compression, drained more slowly than compressed bytes arrive
  disk         a file with the final sync, the encoder left out: buffers are handed over as they are
  disk_direct  the same with direct I/O, dd with oflag=direct

CPU, user and system, of all threads of this process:

  cpu          room() and advance() over os.write of the same buffers, both synced
  cpu_copied   write() of small pieces over the same os.write
  checksum_*   the checksum of bytes over encoding them as CSV and passing them through the sink

A round runs all of them in turn, every other round the other way about. Ratios are taken within a
round, and the median over the rounds counts.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from unloader.storage.stream_relay import open_for_reader
from writers.files.checksums import CHECKSUMS, open_digest
from writers.files.sink import Sink
from writers.model import Compression, OutputSpec, TextFormat
from writers.registry import open_writer

BLOCK = 4 << 20
READER_SECONDS = 30
ROWS = 16_384
PIECE = 6_000

DRAIN = """
import os, sys, time
path, rate = sys.argv[1], float(sys.argv[2])
with open(path, "rb", buffering=0) as pipe:
    due = time.perf_counter()
    while True:
        asked = time.perf_counter()
        block = pipe.read(262144)
        if not block:
            break
        # Time spent waiting for bytes is lost; coming late ourselves is made up for.
        due += time.perf_counter() - asked + len(block) / rate
        time.sleep(max(0.0, due - time.perf_counter()))
"""


class Bench:
    """The contenders; each is a pair of seconds, theirs and ours, for the same bytes."""

    def __init__(self, place: Path, size: int, rate: float) -> None:
        """Prepare rows and memory."""
        self.place, self.size, self.rate = place, size, rate
        self.batch = rows()
        self.block = memoryview(mmap.mmap(-1, BLOCK))
        self.block[:] = os.urandom(BLOCK)

    def pipe(self, codec: Any = "none", slower: float = 1.0) -> tuple[float, float]:
        """Return wall seconds of dd and of the text writer into a pipe drained at a fixed rate."""
        rate, taken, size = self.rate / slower, [], 0
        path = self.place / "pipe"
        os.mkfifo(path)
        for theirs in (False, True):
            drain = subprocess.Popen([sys.executable, "-c", DRAIN, str(path), str(rate)])
            held = open_for_reader(str(path), READER_SECONDS, lambda: None)
            started = time.perf_counter()
            if theirs:
                count = (f"count={size}", "iflag=count_bytes")
                dd(path, *count)
            else:
                size = self.text_into(path, codec, self.size / slower)
            taken.append(time.perf_counter() - started)
            os.close(held)
            drain.wait()
        path.unlink()
        return taken[1], taken[0]

    def text_into(self, path: Path, codec: Any, size: float) -> int:
        """Encode rows until `size` bytes are in the pipe; return the number of bytes."""
        spec = OutputSpec(
            directory=str(self.place),
            stream=str(path),
            format=TextFormat(),
            compression=Compression(codec=codec),
        )
        writer = open_writer(spec, self.batch.schema, "t")
        while writer.bytes_written < size:
            writer.write(self.batch)
        (file,) = writer.close()
        return file.bytes

    def disk(self, direct: bool) -> tuple[float, float]:
        """Return wall seconds of dd and of the sink into a synced file."""
        path, blocks = self.place / "file", self.size // BLOCK
        flags = ("oflag=direct",) if direct else ()
        theirs = clocked(
            time.perf_counter, lambda: dd(path, f"count={blocks}", "conv=fsync", *flags)
        )
        path.unlink()
        ours = clocked(time.perf_counter, lambda: self.handed_over(path, direct))
        path.unlink()
        return theirs, ours

    def handed_over(self, path: Path, direct: bool = False) -> None:
        """Fill a file with buffers that are taken for full."""
        sink = opened(path, direct)
        for _ in range(self.size // BLOCK):
            sink.advance(len(sink.room()))
        sink.close()

    def copied(self, path: Path) -> None:
        """Fill a file from small pieces."""
        sink = opened(path)
        piece = self.block[:PIECE]
        for _ in range(self.size // PIECE):
            sink.write(piece)
        sink.close()

    def written(self, path: Path) -> None:
        """Fill a file by plain calls from a few buffers in turn, as the sink does."""
        buffers = [memoryview(mmap.mmap(-1, BLOCK)) for _ in range(2)]
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for number in range(self.size // BLOCK):
            os.write(descriptor, buffers[number % 2])
        os.fsync(descriptor)
        os.close(descriptor)

    def cpu(self, ours: Callable[[Path], None]) -> tuple[float, float]:
        """Return CPU seconds of plain calls and of ours."""
        path, taken = self.place / "file", []
        for act in (self.written, ours):
            taken.append(clocked(time.process_time, act, path))
            path.unlink()
        return taken[0], taken[1]

    def checksum(self, name: str) -> tuple[float, float]:
        """Return CPU seconds of encoding CSV with the default checksum, and of this one."""
        pipe = Path(os.devnull)
        done: list[int] = []
        encoding = clocked(
            time.process_time, lambda: done.append(self.text_into(pipe, "none", self.size))
        )
        memory = memoryview(mmap.mmap(-1, 16 * BLOCK))
        digest = open_digest(name)
        digest.update(memory)

        def compute() -> None:
            for _ in range(done[0] // len(memory) + 1):
                digest.update(memory)

        return encoding, clocked(time.process_time, compute)


def main() -> None:
    """Measure and print."""
    options = parsed()
    with tempfile.TemporaryDirectory(prefix="unloader-bench-", dir=options.directory) as place:
        report = measure(options, Path(place))
    if options.json:
        print(json.dumps(report, indent=1))
    else:
        for name, ratio in report["ratios"].items():
            print(f"{name:20} {ratio:8.3f}   {report['unit'][name]}")


def parsed() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--directory", help="of the files and pipes; default: a temporary one")
    parser.add_argument("--size", type=float, default=256, help="MiB; default: 256")
    parser.add_argument("--rate", type=float, default=100, help="of the pipe, MB/s; default: 100")
    parser.add_argument("--runs", type=int, default=5, help="rounds; default: 5")
    parser.add_argument("--only", action="append", help="only this contender; can be repeated")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_args()


def measure(options: argparse.Namespace, place: Path) -> dict[str, Any]:
    """Run the contenders round after round; the round before the first is not counted."""
    bench = Bench(place, int(options.size * (1 << 20)), options.rate * 1e6)
    contenders: dict[str, Callable[[], tuple[float, float]]] = {
        "pipe": bench.pipe,
        "pipe_zstd": lambda: bench.pipe("zstd", 24.0),
        "disk": lambda: bench.disk(False),
        "disk_direct": lambda: bench.disk(True),
        "cpu": lambda: bench.cpu(bench.handed_over),
        "cpu_copied": lambda: bench.cpu(bench.copied),
        **{f"checksum_{name}": lambda name=name: bench.checksum(name) for name in CHECKSUMS},  # type: ignore[misc]
    }
    names = [name for name in contenders if not options.only or name in options.only]
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for number in range(options.runs + 1):
        for name in names if number % 2 else names[::-1]:
            pair = contenders[name]()
            print(f"round {number}: {name} {pair[0]:.3f} {pair[1]:.3f}", file=sys.stderr)
            if number:
                taken[name].append(pair)
    speed = ("pipe", "disk")
    return {
        "ratios": {
            name: round(
                statistics.median(a / b if name.startswith(speed) else b / a for a, b in pairs), 4
            )
            for name, pairs in taken.items()
        },
        "unit": {
            name: "of dd's speed" if name.startswith(speed) else "of the CPU compared with"
            for name in names
        },
        "runs": {
            name: [[round(value, 4) for value in pair] for pair in pairs]
            for name, pairs in taken.items()
        },
        "bytes": bench.size,
        "rate": bench.rate,
        "machine": {"system": platform.platform(), "cpus": len(os.sched_getaffinity(0))},
    }


def rows() -> pa.RecordBatch:
    """Return rows of some 160 bytes in a few types."""
    numbers = range(ROWS)
    return pa.RecordBatch.from_pydict(
        {
            "id": pa.array(numbers, pa.int64()),
            "name": pa.array([f"customer number {n * 7919 % 100_000} of many" for n in numbers]),
            "amount": pa.array([n * 104_729 % 1_000_003 for n in numbers], pa.int64()),
            "address": pa.array(
                [f"{n % 997} Long Street, {n * 31 % 99_991} Town" for n in numbers]
            ),
            "note": pa.array([f"{n * n:x} {n * 2654435761 % 2**32:x}" * 2 for n in numbers]),
        }
    )


def opened(path: Path, direct: bool = False) -> Sink:
    """Return a sink as a job's defaults make it."""
    return Sink(path, compression=Compression(), buffer_bytes=BLOCK, buffers=4, direct_io=direct)


def dd(path: Path, *operands: str) -> None:
    """Copy zeros to a file or pipe."""
    command = ("dd", "if=/dev/zero", f"of={path}", f"bs={BLOCK}", *operands)
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)


def clocked(clock: Callable[[], float], act: Callable[..., Any], *arguments: Any) -> float:
    """Return by how much a clock advanced during a call."""
    started = clock()
    act(*arguments)
    return clock() - started


if __name__ == "__main__":
    main()
