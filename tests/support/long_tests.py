"""Which tests a plain run leaves out, the line about them, and the order of the files.

Tests marked `long`, and tests of the folders below. UNLOADER_TEST_ALL=1, `-m`, and naming a file or
a test of it on the command line run them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet
from amounts import EVERYTHING

TESTS = Path(__file__).parents[1]
FOLDERS = {
    "loaders": "programs that load the files",
    "vm": "virtual machines",
    "witnesses": "clients in other languages",
}
"""Folders whose tests are all long, and their kinds."""

OTHER_ROUTES = "other routes to the same"
"""Kind of the tests that repeat a test of a plain run for another route, form or server."""

LONGEST = (
    "vm/test_two_nodes.py",
    "system/test_object_stores.py",
    "system/test_lakehouse.py",
    "vm/test_four_nodes.py",
    "system/test_resume.py",
    "system/test_cluster.py",
    "vm/test_uneven_nodes.py",
    "system/test_lakehouse_kills.py",
    "system/test_lakehouse_sources.py",
    "vm/test_fake_nodes.py",
    "system/test_cluster_requests.py",
    "test_sanitizers.py",
    "system/test_every_selection.py",
    "witnesses",
    "system/test_published_sweep.py",
    "system/test_oracle_faults.py",
    "system/test_oracle_memory.py",
    "system/test_selection.py",
    "system/test_wide_values.py",
    "system/test_ways_of_dying.py",
    "system/test_failures.py",
    "system/test_text_routes.py",
    "unloader/storage/directories/test_broken_publications.py",
    "unloader/cli/commands/test_codecs.py",
    "system/test_output_faults.py",
    "system/test_destinations.py",
    "system/test_routes.py",
    "system/test_masking.py",
    "system/test_oracle_types.py",
    "unloader/cli/options/test_fixed.py",
    "system/test_oracle_sessions.py",
    "system/test_table_names.py",
    "unloader/cli/commands/test_topology.py",
    "unloader/cli/commands/test_run.py",
    "partition_planner/test_simulate.py",
    "writers/native/test_equality.py",
    "examples",
)
"""Folders and files that take longest, in that order; but virtual machines, which take all processors
that they get, one after the other."""

_LEFT_OUT = pytest.StashKey[Counter[str]]()


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take the long tests out of the collected ones, unless they were asked for."""
    for item in items:
        folder = _folder(item.path)
        if folder in FOLDERS:
            item.add_marker(pytest.mark.long(FOLDERS[folder]))
    if EVERYTHING or config.getoption("markexpr"):
        return
    base = config.invocation_params.dir
    named = {(base / str(each).partition("::")[0]).resolve() for each in config.args}
    left_out = [
        item for item in items if item.get_closest_marker("long") and item.path not in named
    ]
    config.stash[_LEFT_OUT] = Counter(_kind(item) for item in left_out)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]


def longest_first(items: list[pytest.Item]) -> None:
    """Put the longest files first, so that no process ends with one while the others are idle."""
    ranks = {TESTS / name: rank for rank, name in enumerate(LONGEST)}

    @cache
    def rank(path: Path) -> int:
        found = (ranks[each] for each in (path, *path.parents) if each in ranks)
        return next(found, len(ranks))

    items.sort(key=lambda item: rank(item.path))


def also(kind: str, *values: object) -> list[ParameterSet]:
    """Return further values of a parameter that only a run of everything tries.

    A tuple is one set of several parameters.
    """
    mark = pytest.mark.long(kind)
    return [
        pytest.param(*(each if isinstance(each, tuple) else (each,)), marks=mark) for each in values
    ]


@cache
def _folder(path: Path) -> str:
    """Return the folder below `tests` that a file of tests is in, if it is."""
    return path.relative_to(TESTS).parts[0] if path.is_relative_to(TESTS) else ""


def _kind(item: pytest.Item) -> str:
    marker = item.get_closest_marker("long")
    assert marker is not None
    (kind,) = marker.args
    return str(kind)


def report(config: pytest.Config, writer: pytest.TerminalReporter) -> None:
    """Report how many tests of each kind were left out, and the command that runs them."""
    found = config.stash.get(_LEFT_OUT, Counter())
    if found:
        kinds = ", ".join(f"{count} of {kind}" for kind, count in found.most_common())
        writer.write_line(
            f"left out: {found.total()} long tests ({kinds}), and most random examples. "
            "Next: ./tests/run.sh --all runs everything, -m long these alone"
        )


def send(config: pytest.Config) -> None:
    """In a process of pytest-xdist: hand the numbers to the one that reports."""
    output: dict[str, Sequence[tuple[str, int]]] | None = getattr(config, "workeroutput", None)
    if output is not None:
        output["left_out"] = list(config.stash.get(_LEFT_OUT, Counter()).items())


def receive(config: pytest.Config, output: dict[str, Sequence[tuple[str, int]]]) -> None:
    """In the process that reports: take the numbers; each process collects the same tests."""
    config.stash[_LEFT_OUT] = Counter(dict(output.get("left_out", ())))
