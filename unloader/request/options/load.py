"""The option on the load of the database, for sources that can read it."""

from __future__ import annotations

from unloader.model import ConcurrencyOptions
from unloader.request.options.kinds import Whole
from unloader.request.options.option import READING, Option

MAX_DB_LOAD = Option(
    name="max-db-load",
    kind=Whole(1),
    section="Speed and memory",
    commands=READING,
    effect="none",
    field="concurrency.max_db_load",
    owner=ConcurrencyOptions,
    record="max_db_load",
    help="Let fewer workers work while more sessions than this are active in the database, ours "
    "included. One worker always goes on. PostgreSQL, Oracle.",
)
