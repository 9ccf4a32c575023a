#!/usr/bin/env python3
"""CPU of transforms and masks, on one core, for rows of 1.2 KB and 14 fields.

    python examples/bench_transforms.py --rows 100000 --runs 3

Batches are made once, as a worker gets them, and written as CSV to /dev/null: `copy` writes them
as they are. Each of the others is the CPU of its steps alone, in CPU-seconds per million rows:

  four_fields        four fields changed in the simple way: one renamed and cut, one cast, one cut
                     to its month, one constant
  four_expressions   four fields computed by SQL, each from one or two others
  filter             a condition in SQL that keeps half of the rows
  hash_unique        a keyed hash of a column whose values are all different
  hash_repeated      the same of a column with 1,000 different values
  tokens, shift      of the same two columns
  encrypt_repeated   FF1 of the column with 1,000 different values
  sql_upper          one expression, beside `arrow_upper`, the same by pyarrow.compute

CPU is user and system time of this process, all threads, bound to one core. A round runs all of
them in turn; the median over the rounds counts. `ratios` has each over `copy`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from unloader.transforms.model import Step, TransformOptions
from unloader.transforms.transformer import Together, Transformer
from unloader.worker.outputs import RowFilter
from writers.files.sink import Sink
from writers.model import Compression
from writers.text.dialects import dialect
from writers.text.text_writer import encode_into, open_encoder

BATCH_ROWS = 1_700
"""About what 32 MiB of fetch memory give for rows of 1.2 KB."""
REPEATED = 1_000
KEY = bytes(range(32))

TRANSFORMS: dict[str, tuple[Step, ...]] = {
    "four_fields": (
        Step(step="rename", names=(("t1", "subject"),)),
        Step(step="truncate", column="subject", characters=20),
        Step(step="cast", column="small", type="int64"),
        Step(step="truncate-date", column="born", to="month"),
        Step(step="constant", column="t9", value="extract"),
    ),
    "four_expressions": (
        Step(step="compute", column="t1", sql="upper(t1)"),
        Step(step="compute", column="small", sql="small * 2 + 1"),
        Step(step="compute", column="amount", sql="coalesce(amount, 0) * 3"),
        Step(step="compute", column="label", sql="name || '-' || id"),
    ),
    "hash_unique": (Step(step="hmac", column="id", key="k"),),
    "hash_repeated": (Step(step="hmac", column="card", key="k"),),
    "tokens": (Step(step="tokenize", column="id", key="k", form="integer"),),
    "shift": (Step(step="shift-date", column="born", by="id", key="k", days=30),),
    "encrypt_repeated": (Step(step="ff1", column="card", key="k"),),
    "sql_upper": (Step(step="compute", column="t1", sql="upper(t1)"),),
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    pa.set_cpu_count(1)
    report = measure(options.rows, options.runs)
    if options.json:
        print(json.dumps(report, indent=1))
        return
    for name, seconds in report["cpu_s_per_million_rows"].items():
        print(f"{name:18}{seconds:9.3f} CPU-s a million rows")


def measure(rows: int, runs: int) -> dict[str, dict[str, float]]:
    """Return CPU-seconds per million rows of everything, and their ratios to the copy."""
    batches = [made(start, min(BATCH_ROWS, rows - start)) for start in range(0, rows, BATCH_ROWS)]
    work: dict[str, Callable[[], None]] = {"copy": lambda: copied(batches)}
    for name, steps in TRANSFORMS.items():
        transformer = Transformer(TransformOptions(steps=steps), batches[0].schema, {"k": KEY})
        work[name] = lambda transformer=transformer: run(transformer, batches)
    work["filter"] = lambda: filtered(batches)
    work["arrow_upper"] = lambda: upper(batches)
    found: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(runs):
        for name, function in work.items():
            before = time.process_time()
            function()
            found[name].append((time.process_time() - before) / rows * 1e6)
    seconds = {name: round(statistics.median(each), 4) for name, each in found.items()}
    ratios = {name: round(each / seconds["copy"], 4) for name, each in seconds.items()}
    return {"cpu_s_per_million_rows": seconds, "ratios": ratios}


def made(start: int, rows: int) -> pa.RecordBatch:
    """Return a batch of rows of 14 fields and about 1.2 KB."""
    numbers = range(start, start + rows)
    texts = {
        f"t{index}": pa.array([f"field {index} of {each} ".ljust(130, "x") for each in numbers])
        for index in range(1, 9)
    }
    born = [date(1950, 1, 1) + timedelta(days=each % 20_000) for each in numbers]
    return pa.record_batch(
        {
            "id": pa.array(numbers, pa.int64()),
            "name": pa.array([f"customer {each}" for each in numbers]),
            "card": pa.array([f"{4_000_000_000_000_000 + each % REPEATED}" for each in numbers]),
            "small": pa.array([each % 100 for each in numbers], pa.int32()),
            "amount": pa.array([Decimal(each) / 100 for each in numbers], pa.decimal128(12, 2)),
            "born": pa.array(born, pa.date32()),
            **texts,
        }
    )


def run(transformer: Transformer, batches: list[pa.RecordBatch]) -> None:
    """Apply a transform to all batches."""
    held = Together()
    for batch in batches:
        if held.add(batch):
            list(transformer.apply(held.take()))
    list(transformer.apply(held.take()))


def filtered(batches: list[pa.RecordBatch]) -> None:
    """Evaluate a condition on all batches, and filter them by it."""
    condition = RowFilter("id % 2 = 0", pa.schema([("id", pa.int64())]), (0,))
    held = Together()
    for number, batch in enumerate(batches, 1):
        if held.add(batch) or number == len(batches):
            taken = held.take()
            for each, rows in zip(taken, condition.kept(taken), strict=True):
                if rows is not None:
                    each.filter(rows)
    condition.close()


def upper(batches: list[pa.RecordBatch]) -> None:
    """Do by pyarrow.compute what `sql_upper` does."""
    for batch in batches:
        pc.utf8_upper(batch.column("t1"))


def copied(batches: list[pa.RecordBatch]) -> None:
    """Write the batches as they are."""
    encoder = open_encoder(batches[0].schema, dialect("rfc4180"), "auto")
    sink = Sink(os.devnull, compression=Compression(), buffer_bytes=4 << 20, buffers=4)
    for batch in batches:
        encode_into(sink, encoder, batch)
    sink.close()


if __name__ == "__main__":
    main()
