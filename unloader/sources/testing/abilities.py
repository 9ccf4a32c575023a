"""Whether a source has the abilities it declares, and no others; part of its contract."""

from __future__ import annotations

from contextlib import suppress
from threading import Thread

from msgspec.structs import replace

from partition_planner.model import PlanLimits
from partition_planner.planner import plan
from unloader.errors import SourceError
from unloader.model import Extract
from unloader.sources.abilities import check_where, describe_query, end_sessions_sql
from unloader.sources.base import Catalog
from unloader.sources.statement import qualified
from unloader.sources.testing.case import PARQUET, Case
from unloader.sources.testing.rows import check_batches, ensure

METHODS = {
    "conditions": "check_where",
    "queries": "describe_query",
    "encoded_text": "encodes",
    "keeping": "kept_until",
    "hashes": "open_hasher",
    "connects": "ping",
    "sessions": "end_sessions_sql",
    "loads": "open_load",
    "lists": "list_tables",
    "describes_many": "describe_tables",
    "samples": "sampled_keys",
    "holds_many": "hold_tables",
    "counts_many": "count_tables",
    "addresses_are_values": "address_column",
}
"""Ability to the method that a catalog with it has."""

NO_CONDITIONS = ("unloader_no_such_column = 1", "1 = 1) OR (1 = 1")
"""What no source takes as one condition over the columns of a table."""


def check_declared(catalog: Catalog) -> None:
    """Check that the abilities declared are those that the catalog has the methods for."""
    for ability, method in METHODS.items():
        declared = getattr(catalog.capabilities, ability)
        ensure(
            declared == callable(getattr(catalog, method, None)),
            f"the ability {ability!r} is {'' if declared else 'not '}declared, and the catalog has "
            f"{'no' if declared else 'a'} method {method}",
        )
    ensure(
        isinstance(end_sessions_sql(catalog), str),
        "the catalog has no statement that ends sessions",
    )


def check_conditions(case: Case) -> None:
    """Read where nothing and where everything is asked for; what is no condition is refused."""
    if not case.catalog.capabilities.conditions:
        return
    for where, rows in (("1 = 0 -- none", 0), ("1 = 1 -- all", case.rows)):
        extract = case.extract(PARQUET, where=where)
        check_where(case.catalog, extract)
        units = plan(case.table, PlanLimits(parallelism=2)).units
        batches = case.batches(extract, units)
        check_batches(batches, extract.projection)
        read = sum(batch.num_rows for batch in batches)
        ensure(read == rows, f"{read} rows, not {rows}, are read where {where}")
        counted = case.catalog.count(extract)
        ensure(counted == rows, f"{counted} rows, not {rows}, are counted where {where}")


def check_refused_conditions(case: Case) -> None:
    """Check that what is no condition is refused; the source may be of no more use after it."""
    if not case.catalog.capabilities.conditions:
        return
    for wrong in NO_CONDITIONS:
        try:
            check_where(case.catalog, case.extract(PARQUET, where=wrong))
        except SourceError as error:
            ensure(wrong in error.message, f"the error for a condition lacks it: {error.message}")
        else:
            raise AssertionError(f"{wrong} was accepted as a condition")


def check_query(case: Case) -> None:
    if not case.catalog.capabilities.queries:
        return
    query = f"SELECT * FROM {qualified(case.table.schema, case.table.name)} -- all;"
    info = describe_query(case.catalog, query)
    names = [column.name for column in info.columns]
    ensure(
        names == [column.name for column in case.table.columns],
        f"a query for all columns has the columns {names}",
    )
    ensure(info.name == "query" and not info.partitions, "a query is not described as one")
    asked = replace(case, table=info)
    extract = asked.extract(PARQUET, query=query)
    units = plan(info, PlanLimits(parallelism=2)).units
    batches = asked.batches(extract, units)
    check_batches(batches, extract.projection)
    read = sum(batch.num_rows for batch in batches)
    ensure(read == case.rows, f"{read} rows, not {case.rows}, are read by a query for all")
    counted = case.catalog.count(extract)
    ensure(counted == case.rows, f"{counted} rows, not {case.rows}, are counted by a query")


def check_hold(case: Case, extract: Extract) -> None:
    """Hold what a plan reads, as before a run: nothing has changed, so nothing is refused."""
    for limits in (PlanLimits(parallelism=2), PlanLimits(parallelism=1, split="none")):
        case.catalog.hold(extract, plan(case.table, limits).selectors)


def check_cancel(case: Case, extract: Extract) -> None:
    """Cancel from another thread, twice, with and without a call that waits.

    The call that waits returns, as nothing was slow, or raises an error; it never hangs.
    """
    for waiting in (False, True):
        thread = Thread(target=_cancel_twice, args=(case.catalog, problems := list[str]()))
        thread.start()
        if waiting:
            with suppress(Exception):
                case.catalog.count(extract)
        thread.join()
        ensure(not problems, f"cancel raised: {', '.join(problems)}")


def _cancel_twice(catalog: Catalog, problems: list[str]) -> None:
    for _ in range(2):
        try:
            catalog.cancel()
        except Exception as error:  # whatever it is, the test names it
            problems.append(repr(error))
