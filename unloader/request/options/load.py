"""The option on the load of the database, for sources that can read it."""

from __future__ import annotations

from unloader.model import ConcurrencyOptions
from unloader.request.options.kinds import Whole
from unloader.request.options.option import READING, Option

MAX_DB_LOAD = Option(
    name="max-db-load",
    kind=Whole(1),
    section="Speed",
    commands=READING,
    effect="none",
    field="concurrency.max_db_load",
    owner=ConcurrencyOptions,
    record="max_db_load",
    help=(
        "Use fewer workers while more sessions than this are active in the database, including "
        "the sessions of the run. One worker always continues. Only PostgreSQL and "
        "Oracle."
    ),
    example="40",
)
