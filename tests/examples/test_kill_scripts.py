"""The scripts that kill, damage and restart runs, each with a few kills."""

from __future__ import annotations

import os
import shutil

import pytest
from amounts import amount
from example_scripts import HERE, report
from long_tests import OTHER_ROUTES

STORE_KILLS = amount("UNLOADER_TEST_STORE_KILLS", 5, 5)
CLUSTER_RUNS = amount("UNLOADER_TEST_CLUSTER_KILLS", 2, 2)


@pytest.mark.long(OTHER_ROUTES)
def test_all_damage_is_found_and_named() -> None:
    """Every flipped bit and every edit is found, and the file is named."""
    flips = amount("UNLOADER_TEST_FLIPS", 60, 400)
    edits = amount("UNLOADER_TEST_EDITS", 80, 120)
    found = report("find_damage.py", "--flips", str(flips), "--edits", str(edits))
    assert found["found_and_named"] == found["total"] == flips + edits
    assert found["tried"]["flip"] == flips
    assert len(found["tried"]) == 9


@pytest.mark.long("faults of whole runs")
def test_every_resume_ends_whole_and_equal() -> None:
    """Another session changes rows after every kill; no finished unit is run again."""
    found = report(
        "random_kills.py", "--source", "postgres", "--rows", "60k", "--kills", "4",
        "--unit-bytes", "1MiB", "--format", "parquet", "--dir", HERE,
    )  # fmt: skip
    assert (found["broken"], found["kills"]) == ("", 4)
    assert found["resumes_that_needed_a_hand"] == found["finished_units_rerun"] == 0
    assert found["runs"] >= 1


@pytest.mark.long("faults of whole runs")
def test_all_tables_are_one_state_in_the_end() -> None:
    """Runs over several tables are killed while a writer continues."""
    found = report(
        "random_table_kills.py", "--source", "postgres", "--tables", "6", "--big-tables", "1",
        "--big-rows", "2000", "--small-rows", "60", "--kills", "3", "--dir", HERE,
    )  # fmt: skip
    assert found["broken"] == ""
    assert found["kills"] >= 3
    assert found["rows_compared"] > 0


@pytest.mark.long("runs into object stores")
def test_what_has_its_final_name_is_whole_and_no_upload_stays() -> None:
    """Runs are killed at any moment, and also the commands that repair the rest."""
    found = report("store_kills.py", "--kills", str(STORE_KILLS), "--seed", "3")
    assert (found["broken"], found["kills"]) == ("", STORE_KILLS)


@pytest.mark.long("runs in clusters")
def test_a_cluster_writes_the_same_bytes_whatever_is_killed() -> None:
    """Machines are network namespaces; the bytes equal a run on one machine."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and the program ip (Debian: iproute2)")
    found = report(
        "cluster_kills.py", "--rows", "200k", "--runs", str(CLUSTER_RUNS), "--kinds", "host,worker",
        "--seed", "2",
    )  # fmt: skip
    assert (found["broken"], found["runs"]) == ("", CLUSTER_RUNS)
