"""The program as functions: the command line is one caller of them among others.

    describe, plan, check      what would be read, and in which form      planning
    unload, resume             runs                                       running
    status, stop, verify       existing runs                              existing_runs
    report, write_report       pages about runs and sweeps                existing_runs
    measure_codecs, size       how fast it would be                       measuring

Every function takes plain data, returns plain data and raises only `UnloaderError`s.
"""

from __future__ import annotations

from unloader.api.existing_runs import (
    change,
    check_report,
    clean,
    end_keepers,
    keepers,
    merge,
    report,
    report_of,
    report_page,
    runs,
    status,
    stop,
    sweep_report,
    verify,
    write_report,
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
