"""How many random examples a property test tries.

As part of the suite each test tries the same few every time. UNLOADER_TEST_EXAMPLES names another
number of them; from a thousand on they are new ones each time, for a longer run.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

EXAMPLES = int(os.environ.get("UNLOADER_TEST_EXAMPLES", "0"))
NEW_FROM = 1000


def tries(examples: int) -> settings:
    """Return the settings of a test that tries so many examples as part of the suite."""
    return settings(
        max_examples=EXAMPLES or examples,
        derandomize=EXAMPLES < NEW_FROM,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
