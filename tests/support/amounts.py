"""How much a test tries: enough to hold a change against, or everything there is.

UNLOADER_TEST_ALL=1, which `./tests/run.sh --all` sets, asks for everything: tests marked `long`,
tables of full size, all random examples. These are the same ones each time. UNLOADER_TEST_EXAMPLES
names another number of them for the tests that call `tries`; from a thousand on all tests have new
ones each time.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

EVERYTHING = os.environ.get("UNLOADER_TEST_ALL", "") not in ("", "0")
EXAMPLES = int(os.environ.get("UNLOADER_TEST_EXAMPLES", "0"))
NEW_FROM = 1000
_PART = 20


def amount(variable: str, usual: int, everything: int) -> int:
    """Return a number that an environment variable may name, of two that depend on the run."""
    return int(os.environ.get(variable, everything if EVERYTHING else usual))


def examples(everything: int) -> int:
    """Return how many random examples to try, given how many a run of everything tries."""
    return everything if EVERYTHING else max(everything // _PART, 10)


def tries(everything: int) -> settings:
    """Return the settings of a test that tries the same examples every time."""
    return settings(
        max_examples=EXAMPLES or examples(everything),
        derandomize=EXAMPLES < NEW_FROM,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
