"""A resolved run in JSON: it comes back equal, an edited one is refused, and no secret is in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from numa.model import Topology
from partition_planner.model import ColumnInfo, Plan, PlanLimits, RowExtent, TableInfo
from partition_planner.planner import plan
from unloader.errors import PlanFailed
from unloader.json_fields import hints_of, is_record
from unloader.model import (
    Extract,
    OutputOptions,
    Projection,
    Request,
    RetryOptions,
    Selection,
    SourceSpec,
)
from unloader.placement.seating import Seating
from unloader.resolve.resolved import ResolvedOutput, ResolvedRun
from writers.model import Compression, FixedField, TextFormat

FLOATS = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Return the plan of a table with rows somewhere."""
    extent = RowExtent(first=0, last=draw(st.integers(1, 10**12)))
    table = TableInfo(
        schema=draw(st.none() | st.text()),
        name=draw(st.text(min_size=1)),
        columns=(ColumnInfo(name=draw(st.text(min_size=1)), native_type="INTEGER"),),
        rows=draw(st.none() | st.integers(0, 10**9)),
        extents=(extent,),
        named_partitions=False,
        row_ranges=draw(st.booleans()),
    )
    return plan(table, PlanLimits(parallelism=draw(st.integers(1, 40))))


st.register_type_strategy(Plan, plans())
st.register_type_strategy(float, FLOATS)


def records_in(hint: Any) -> Iterator[type[Struct]]:
    """Yield the records in a type, and those in their fields."""
    for each in get_args(hint):
        yield from records_in(each)
    if is_record(hint) and hint is not Plan:
        for inner in hints_of(hint).values():
            yield from records_in(inner)
        yield hint


# Hypothesis would take the factory of a field's default for the default.
for kind in dict.fromkeys(records_in(ResolvedRun)):
    fields_of = {name: st.from_type(hint) for name, hint in hints_of(kind).items()}
    st.register_type_strategy(kind, st.builds(kind, **fields_of))


def small() -> ResolvedRun:
    """Return a run as small as one can be."""
    table = TableInfo(
        schema=None,
        name="t",
        columns=(ColumnInfo(name="k", native_type="INTEGER"),),
        named_partitions=False,
        row_ranges=False,
    )
    source = SourceSpec(kind="duckdb", location="duckdb:///t.db")
    options = OutputOptions(destination="/out", format=TextFormat())
    return ResolvedRun(
        run_id="r1",
        request=Request(source=source, selection=Selection(), output=options),
        server_version="DuckDB",
        extract=Extract(
            source=source,
            snapshot=None,
            table=table,
            query=None,
            where=None,
            projection=Projection(columns=(), route="arrow", schema=b"\x00\xff"),
        ),
        plan=plan(table, PlanLimits(parallelism=1)),
        outputs=(
            ResolvedOutput(
                options=options,
                format=TextFormat(fixed=(FixedField(start=0, width=3),)),
                compression=Compression(codec="zstd", level=3),
                choice=None,
            ),
        ),
        topology=Topology(nodes=(), cpu_quota=None, note=None),
        seating=Seating(seats=(), memory_policy="local"),
    )


def through_text(document: Any) -> Any:
    """Return what a file would give back."""
    return json.loads(json.dumps(document))


@settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.from_type(ResolvedRun))
def test_any_run_comes_back_equal(run: ResolvedRun) -> None:
    """Every field of every type that a run is made of goes to JSON and comes back as it was."""
    back = ResolvedRun.from_json(through_text(run.to_json()))
    assert back == run
    assert back.digest == run.digest
    # The record's text is made in another way; statements of sessions are left out of it.
    recorded = ResolvedRun.from_json(json.loads(run.record()))
    assert recorded == run or run.request.source.session.session_sql


def test_text_that_is_no_utf8_comes_back() -> None:
    """The name of a directory may be any bytes."""
    run = small()
    output = replace(run.request.output, destination="/out/\udcff")
    run = replace(run, request=replace(run.request, output=output))
    assert ResolvedRun.from_json(through_text(run.to_json())) == run


def test_whole_numbers_for_seconds_come_back() -> None:
    """A caller may give 300 where 300.0 is meant: the plan that is written is not an edited one."""
    run = small()
    retry = RetryOptions(delay_seconds=1, stall_seconds=300)
    run = replace(run, request=replace(run.request, retry=retry))
    assert ResolvedRun.from_json(through_text(run.to_json())) == run


@pytest.mark.parametrize("name", ResolvedRun.__struct_fields__)
def test_a_run_must_be_whole(name: str) -> None:
    """A run that lacks one of its parts is refused, and the part is named."""
    document = small().to_json()
    del document[name]
    with pytest.raises(PlanFailed, match=f"no '{name}'"):
        ResolvedRun.from_json(document)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("format_version",), 2, "has format version 2, but this version of unloader reads 3"),
        (("format_version",), 4, "has format version 4, but this version of unloader reads 3"),
        (("format_version",), "3", "not a plan: it has no format version"),
        (("request", "fetch_bytes"), 7, "edited"),
        (("request", "fetch_bytes"), "7", "the run.request.fetch_bytes is '7', not an integer"),
        (("request", "more"), 7, "the run.request has the unknown key 'more'"),
        (("extract", "where"), "k < 3", "edited"),
        (("outputs",), {}, "the run.outputs is {}, not a list"),
        (("plan", "digest"), "0", "edited"),
        (("run_digest",), "0", "edited"),
        (("extract", "projection", "route"), "x", "route is 'x', not 'arrow' or 'encoded'"),
    ],
)
def test_what_was_edited_is_refused(path: tuple[str, ...], value: Any, message: str) -> None:
    """Nothing of a run can be changed by hand, and the place of what makes no sense is named."""
    document = through_text(small().to_json())
    part = document
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    with pytest.raises(PlanFailed, match=".*".join(map(str, (message,)))):
        ResolvedRun.from_json(document)


@pytest.mark.parametrize(
    "secret",
    ["ALTER USER me IDENTIFIED BY tiger", "begin app.login('me', password => 'tiger'); end;"],
)
def test_what_is_written_down_holds_no_password(secret: str) -> None:
    """A statement with a password is left out, and its option is named for whoever resumes."""
    run = small()
    plain = "SET x = 1"
    session = replace(run.request.source.session, session_sql=(secret, plain))
    source = replace(run.request.source, session=session)
    run = replace(
        run,
        request=replace(run.request, source=source),
        extract=replace(run.extract, source=source),
    )
    kept = run.without_secrets()
    assert "tiger" not in json.dumps(kept.to_json())
    assert kept.withheld == ("session-sql",)
    assert kept.extract.source.session.session_sql == (plain,)
    assert small().without_secrets() == small()
    record = ResolvedRun.from_json(json.loads(run.record()))
    assert record.extract.source.session.session_sql == ()
    assert record.request.source.session.session_sql == ()
    assert record.withheld == ("session-sql",)
