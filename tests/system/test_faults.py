"""Whole unloads under faults, and power cuts at every boundary; `tests/faults.sh` tries them all.

`tests/support/faults` has the catalogue of faults and the promises. UNLOADER_TEST_SEED names other
moments for the kills.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from amounts import EVERYTHING
from faults.catalog import FAULTS, Fault
from faults.crashes import SCENES, Crashes, Scene
from faults.injections import Libraries
from faults.source_faults import source_faults
from faults.targets import Target, duckdb_target, many_units, oracle_target, postgres_target
from faults.trial import Trials
from long_tests import also

SEED = int(os.environ.get("UNLOADER_TEST_SEED", "1"))
KIND = "faults of whole runs"
"""The kind of the long tests."""

TRIED = [fault for fault in (*FAULTS, *source_faults()) if fault.tries != "once"]
PLAIN = [fault for fault in TRIED if fault.tries == "plain"]
ALL = [fault for fault in TRIED if fault.tries == "all"]


@pytest.fixture(scope="module")
def trials(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Trials]]:
    """Trials on a target, by its name; one undisturbed run each serves all of them."""
    place = tmp_path_factory.mktemp("faults")
    libraries = Libraries.build(place)
    with ExitStack() as servers:

        @cache
        def on(name: str) -> Trials:
            made = servers.enter_context(_opened(name, place, request))
            return Trials(target=made, place=place, libraries=libraries)

        yield on


@contextmanager
def _opened(name: str, place: Path, request: pytest.FixtureRequest) -> Iterator[Target]:
    if name == "oracle":
        with oracle_target() as target:
            yield target
    elif name == "postgresql":
        server: Any = request.getfixturevalue("postgres")
        yield postgres_target(server)
    else:
        yield (many_units if name == "many" else duckdb_target)(place)


@pytest.mark.parametrize(
    "fault", [*PLAIN, *also(KIND, *ALL)], ids=lambda fault: fault.name.replace(" ", "_")
)
def test_a_fault_costs_time_and_nothing_else(trials: Callable[[str], Trials], fault: Fault) -> None:
    """The run ends as it should, leaves nothing half-done, and `resume` makes it whole and equal."""
    if why := fault.injection.impossible():
        pytest.skip(why)
    trials(fault.target).run(fault, SEED)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Target:
    """A table of a few units, so small that hundreds of copies cost little."""
    return duckdb_target(tmp_path_factory.mktemp("small"), rows=1200, unit_bytes="40kB")


@pytest.mark.long("faults of whole runs")
@pytest.mark.parametrize(
    "scene",
    [SCENES[1], *also(KIND, SCENES[0], SCENES[2])],
    ids=lambda scene: scene.name.replace(" ", "_"),
)
def test_a_power_cut_at_any_boundary(small: Target, tmp_path: Path, scene: Scene) -> None:
    """After a power cut one whole run has its final names, and the other can be resumed.

    Which steps reach the disk is chosen adversarially, for a journaling file system and for one that
    promises what POSIX does.
    """
    crashes = Crashes(scene, small, tmp_path)
    chance = random.Random(SEED)
    for model in ("journal", "posix"):
        found = list(crashes.states(model, SEED))
        # How many there are depends on how the journal's thread falls in with the writers, and of a
        # run that is resumed on how many units were left. To publish alone has more than five.
        assert len(found) > 5
        for state in found:
            assert not crashes.wrong_at_once(state), f"seed {SEED}, {state.label}"
        for state in chance.sample(found, 6 if EVERYTHING else 2):
            crashes.wrong_at_once(state)
            wrong = crashes.wrong_after(chance)
            assert not wrong, f"seed {SEED}, {state.label}: {wrong}"
