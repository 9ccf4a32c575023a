"""The benchmarks run at a tiny size, and each answer has the figures that it promises."""

from __future__ import annotations

import os
from shutil import which
from typing import Any

import pytest
from example_scripts import HERE, report

pytestmark = pytest.mark.long("benchmarks")


def _only(names: tuple[str, ...]) -> list[str]:
    return [part for name in names for part in ("--only", name)]


ONE_RUN = ("--runs", "1")
SINKS = ("pipe", "pipe_zstd", "disk", "cpu", "cpu_copied", "checksum_xxh3", "checksum_sha256")
WIDE = ("mysql", "postgres-parquet")
VERIFIED = ("duckdb_csv", "postgres_parquet")
BENCHMARKS = {
    "bench_routes.py": (
        ("--source", "duckdb", "--rows", "2000", *ONE_RUN),
        {"four_routes_cpu_vs_four_runs", "four_routes_cpu_per_row_vs_four_runs"},
    ),
    "bench_objects.py": (
        ("--share", "0.001", "--workers", "1", "--sizes", "1KB", "--directory", HERE),
        {"packed_over_copy_1KB", "packed_over_inline_1KB", "packed_over_published_1KB"},
    ),
    "bench_sink.py": (
        ("--size", "8", "--rate", "400", "--directory", HERE, *ONE_RUN, *_only(SINKS)),
        set(SINKS),
    ),
    "bench_start.py": (
        ("--rows", "10", "--workers", "3", "--dir", HERE, *ONE_RUN),
        {f"{each}_cpu_vs_import" for each in ("sqlite", "postgres", "duckdb", "oracle")}
        | {"postgres_wall_vs_psql", "duckdb_cpu_vs_copy"},
    ),
    "bench_transforms.py": (
        ("--rows", "3000", *ONE_RUN),
        {"copy", "four_fields", "hash_unique", "sql_upper"},
    ),
    "bench_verify.py": (
        ("--rows", "2000", *ONE_RUN, *_only(VERIFIED)),
        {
            f"{contest}_verify_{level}_{key}_over_run_{key}"
            for contest in VERIFIED
            for level in ("full", "source")
            for key in ("wall", "cpu")
        },
    ),
    "bench_wide_values.py": (
        ("--total", "16", *_only(WIDE)),
        {
            f"{contest}_{step}_{size}_over_1"
            for contest in WIDE
            for step in ("write", "full", "check")
            for size in (4, 16)
        },
    ),
    "wide_memory.py": (
        ("--rows", "3", "--megabytes", "1", "--only", "sqlite", "--only", "tsv full"),
        {f"sqlite tsv full_{at}_many_over_one" for at in ("worker", "parent")},
    ),
    "bench_writers.py": (
        ("--rows", "3000", *ONE_RUN),
        {"write_csv", "compute", "polars", "duckdb", "plain", "parquet", "parquet_size_vs_duckdb"},
    ),
    "bench_end_to_end.py": (
        ("--rows", "2000", "--dir", HERE, "--only", "pg_csv", "--only", "duckdb_parquet", *ONE_RUN),
        {"pg_csv_wall_vs_psql", "duckdb_parquet_cpu_vs_copy"},
    ),
}
"""Of each script the arguments of a tiny run, and names of ratios in its answer."""


@pytest.mark.parametrize("script", BENCHMARKS)
def test_each_benchmark_gives_its_ratios(script: str) -> None:
    """Each ratio is there and above zero, and no file is left.

    Starts are taken off a ratio by rows: so few rows cost less than starts vary.
    """
    arguments, ratios = BENCHMARKS[script]
    found = report(script, *arguments)["ratios"]
    assert ratios <= set(found)
    assert all(ratio > 0 for name, ratio in found.items() if "_per_row_" not in name)


def test_levels_of_workers_are_compared() -> None:
    """Each level has its speed beside COPY's, and two lengths give the fixed part."""
    found = report(
        "bench_scale.py", "--rows", "2000", "--levels", "2", "--format", "csv", "--dir", HERE,
        *ONE_RUN,
    )  # fmt: skip
    assert {"csv_vs_copy_at_1", "csv_vs_copy_at_2", "cpu_per_row_at_2_vs_1"} <= set(found["ratios"])
    assert {"fixed_s_at_2", "fixed_cpu_s_per_worker_at_2"} <= set(found["ratios"])
    assert {"csv_whole_vs_copy_at_2", "start_s_at_2"} <= set(found["ratios"])
    assert [each["workers"] for each in found["levels"]] == [1, 2]
    assert all(each["copy_rows_per_second"] > 0 for each in found["levels"])


def test_fixed_and_adaptive_runs_are_paired() -> None:
    """Each source has the seconds of all runs, the ratio by turns, and the curve of each turn."""
    found = report(
        "bench_adaptive.py", "--only", "duckdb", "--rows", "5k", "--levels", "2", "--turns", "2"
    )["sources"]["duckdb"]
    assert {len(each) for each in found["seconds"].values()} == {2}
    pairs = zip(found["seconds"]["adaptive"], found["seconds"]["2"], strict=True)
    assert found["ratios_of_turns"] == pytest.approx([a / b for a, b in pairs], rel=0.02)
    for curve in found["curves"]:
        assert sum(each["rows_per_second"] for each in curve) == found["rows"] == 5_000
        assert max(each["may_work"] for each in curve) <= 2


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces are for root only")
def test_the_network_is_measured_beside_iperf3() -> None:
    """Loss and order agree with netfilter and a relay, whatever the rates are."""
    if missing := [each for each in ("iperf3", "nft", "tc") if not which(each)]:
        pytest.skip(f"not installed: {', '.join(missing)}")
    ratios = report("bench_network.py", "--seconds", "1", "--soak", "2", *ONE_RUN)["ratios"]
    assert all(ratios[f"{each}_vs_iperf3"] > 0 for each in ("tcp", "udp", "limited"))
    assert ratios["loss_error"] <= 0.1
    assert ratios["order_error"] <= 0.01
    assert ratios["spread_error"] == 0
    assert ratios["overrun_error"] <= 0.01
    assert ratios["soak_loss_error"] == 0


def test_all_tables_are_listed_and_described(postgres: Any) -> None:
    """The CPU time of a table is measured for each database."""
    found = report(
        "bench_listing.py", "--tables", "30", "--duckdb", "30", "--sqlite", "30",
        "--postgres", postgres.database("bench listing"),
    )  # fmt: skip
    assert set(found) == {"duckdb", "sqlite", "postgresql"}
    assert all(each["tables"] == 30 and each["cpu_ms_per_table"] > 0 for each in found.values())


def test_placement_is_compared_with_none() -> None:
    """Each ratio has a spread, and the cost of one look is there."""
    found = report(
        "bench_numa.py", "--rows", "2000", "--parallelism", "1", "--sizes", "8", "--dir", HERE,
        *ONE_RUN,
    )  # fmt: skip
    assert {"cpu_auto_vs_off", "wall_auto_vs_off"} <= set(found["ratios"])
    for ratio in found["ratios"].values():
        assert 0 < ratio["least"] <= ratio["median"] <= ratio["most"]
    assert [each["pages"] for each in found["look_ms"]] == ["small", "huge"]


def test_pools_are_compared() -> None:
    """With a few tasks every pool gives its figures."""
    found = report("bench_pool.py", "--tasks", "200", "--start-workers", "2", *ONE_RUN)
    assert {"supervisor", "pool", "executor", "multiprocessing"} <= set(found["tasks"])
    assert all(figures["wall_us"] > 0 for figures in found["tasks"].values())


def test_a_run_of_many_units_is_continued() -> None:
    """All staged units are kept, and the others unloaded."""
    found = report("bench_resume.py", "--units", "300", "--dir", HERE)
    assert (found["units"], found["kept"]) == (300, 200)
    assert found["ratios"]["resume_cpu_microseconds_per_kept_unit"] > 0


@pytest.mark.parametrize("source", ["postgres", "duckdb"])
def test_all_tables_of_a_schema_are_one_state(source: str) -> None:
    """Names are hostile and a writer commits; what each side has written is compared."""
    tables = "35" if source == "postgres" else "6"
    found = report(
        "bench_schema.py", "--source", source, "--tables", tables, "--big-tables", "1",
        "--big-rows", "3000", "--small-rows", "50", "--loop-small", "1", "--dir", HERE, *ONE_RUN,
    )  # fmt: skip
    assert {"wall_vs_loop", "cpu_vs_loop"} <= set(found["ratios"])
    assert {each["tables"] for each in found["checked"]} == {int(tables)}
