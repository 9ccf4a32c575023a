"""Rules between options: what contradicts what, each reported with the way out.

A rule on formats looks at the options given for this job, on the command line or in the job file.
Variables may be set for all jobs of a machine and are let pass where they do not apply.
"""

from __future__ import annotations

from unloader.cli.options.rules.runs import validate_seats
from unloader.cli.options.rules.validation import (
    broken,
    validate,
    validate_plan_file,
    validate_planned,
    validate_source,
)

__all__ = (
    "broken",
    "validate",
    "validate_plan_file",
    "validate_planned",
    "validate_seats",
    "validate_source",
)
