"""What the program can do, as functions: the command line is one caller of them among others.

    describe, plan, check     what would be read, and what would become of it     planning
    unload, resume            rows go out                                         running
    status, stop, verify      what is known of runs, and what is done with them   existing_runs
    report, write_report      pages about runs and sweeps                         reports
    measure_codecs, size      how fast it would be                                measuring

Every function takes plain data, returns plain data and raises only `UnloaderError`s.
"""

from __future__ import annotations

from unloader.api.existing_runs import (
    change,
    clean,
    end_keepers,
    keepers,
    merge,
    runs,
    status,
    stop,
    verify,
)
from unloader.api.measuring import measure_codecs, preflight, recorded_machine, size, topology
from unloader.api.planning import (
    FOR_THE_READER,
    PlannedRun,
    TableDescription,
    check,
    describe,
    list_tables,
    plan,
    planned_run,
    schema_tables,
)
from unloader.api.reports import (
    check_report,
    report,
    report_of,
    report_page,
    sweep_report,
    write_report,
)
from unloader.api.running import finished, interrupted, resume, unload

__all__ = (
    "FOR_THE_READER",
    "PlannedRun",
    "TableDescription",
    "change",
    "check",
    "check_report",
    "clean",
    "describe",
    "end_keepers",
    "finished",
    "interrupted",
    "keepers",
    "list_tables",
    "measure_codecs",
    "merge",
    "plan",
    "planned_run",
    "preflight",
    "recorded_machine",
    "report",
    "report_of",
    "report_page",
    "resume",
    "runs",
    "schema_tables",
    "size",
    "status",
    "stop",
    "sweep_report",
    "topology",
    "unload",
    "verify",
    "write_report",
)
