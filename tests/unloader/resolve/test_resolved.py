"""A resolved run in JSON: it comes back equal, an edited one is refused, and no secret is in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.json import decode, encode
from msgspec.structs import replace

from numa.model import Topology
from partition_planner.model import ColumnInfo, Plan, PlanLimits, RowExtent, TableInfo
from partition_planner.planner import plan
from unloader.errors import ConfigError, PlanFailed
from unloader.model import (
    Extract,
    OutputOptions,
    Projection,
    Request,
    RetryOptions,
    Selection,
    SourceSpec,
    TablesOptions,
)
from unloader.placement.seating import Seating
from unloader.resolve.resolved import (
    ResolvedOutput,
    ResolvedTable,
    UnusableRecord,
    first_of,
    is_of_tables,
    read_record,
    read_table,
    record_of,
    recorded_tables,
    single_record,
)
from unloader.transforms.model import MASKS, STEPS, Step
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


@st.composite
def steps(draw: st.DrawFn) -> Step:
    """Return a step with the fields of its kind."""
    kind = draw(st.sampled_from([*STEPS, *MASKS]))
    needed, optional = (STEPS | MASKS)[kind]
    usual = dict(zip(Step.__struct_fields__[1:], Step.__struct_defaults__, strict=True))
    hints = get_type_hints(Step)
    given = {
        name: draw(st.from_type(hints[name]).filter(lambda value, name=name: value != usual[name]))
        for name in needed
    }
    some = {name: draw(st.from_type(hints[name])) for name in optional}
    return Step(step=kind, **given, **some)


st.register_type_strategy(Plan, plans())
st.register_type_strategy(Step, steps())
st.register_type_strategy(float, FLOATS)


def records_in(hint: Any) -> Iterator[type[Struct]]:
    """Yield the records in a type, and those in their fields."""
    for each in get_args(hint):
        yield from records_in(each)
    if isinstance(hint, type) and issubclass(hint, Struct) and hint not in (Plan, Step):
        for inner in get_type_hints(hint).values():
            yield from records_in(inner)
        yield hint


# Hypothesis would take the factory of a field's default for the default.
for kind in dict.fromkeys(records_in(ResolvedTable)):
    fields_of = {name: st.from_type(hint) for name, hint in get_type_hints(kind).items()}
    st.register_type_strategy(kind, st.builds(kind, **fields_of))


def small() -> ResolvedTable:
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
    return ResolvedTable(
        run_id="r1",
        request=Request(source=source, selection=Selection(), output=options),
        server_version="DuckDB",
        extract=Extract(
            source=source,
            snapshot=None,
            table=table,
            query=None,
            where=None,
            projection=Projection(columns=(), route="arrow", schema="00ff"),
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


@settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.from_type(ResolvedTable))
def test_any_run_comes_back_equal(run: ResolvedTable) -> None:
    """Every field of every type that a run is made of goes to JSON and comes back as it was."""
    assert ResolvedTable.from_json(decode(encode(run.to_json()))) == run
    # Statements of sessions are left out of the record.
    record = record_of((run,), "/x", TablesOptions(destination="/x"), is_single=True)
    recorded = first_of(record, "/x")
    assert recorded == run or run.request.source.session.session_sql


def test_a_name_that_is_not_utf8_is_one_clear_error() -> None:
    """The current directory may have such a name; JSON cannot hold it."""
    run = small()
    output = replace(run.request.output, destination="/out/\udcff")
    run = replace(run, request=replace(run.request, output=output))
    with pytest.raises(ConfigError, match=r"'/out/.*' is not text in UTF-8"):
        single_record(run)


def test_whole_numbers_for_seconds_come_back() -> None:
    """A caller may give 300 where 300.0 is meant: the plan that is written is not an edited one."""
    run = small()
    retry = RetryOptions(delay_seconds=1, stall_seconds=300)
    run = replace(run, request=replace(run.request, retry=retry))
    assert ResolvedTable.from_json(decode(encode(run.to_json()))) == run


@pytest.mark.parametrize(
    "name", ["run_id", "request", "extract", "plan", "outputs", "topology", "seating"]
)
def test_a_run_must_be_whole(name: str) -> None:
    """A run that lacks one of its parts is refused, and the part is named."""
    document = small().to_json()
    del document[name]
    with pytest.raises(PlanFailed, match=f"missing required field `{name}`"):
        ResolvedTable.from_json(document)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("format_version",), 3, "has format version 3, but this version of unloader reads 6"),
        (("format_version",), 7, "has format version 7, but this version of unloader reads 6"),
        (("format_version",), "3", "not a plan: it has no format version"),
        (("request", "fetch_bytes"), 7, "edited"),
        (("request", "fetch_bytes"), "7", "Expected `int`, got `str` - at `$.request.fetch_bytes`"),
        (("request", "more"), 7, "unknown field `more` - at `$.request`"),
        (("extract", "where"), "k < 3", "edited"),
        (("outputs",), {}, "Expected `array`, got `object` - at `$.outputs`"),
        (("plan", "digest"), "0", "edited"),
        (("run_digest",), "0", "edited"),
        (
            ("extract", "projection", "route"),
            "x",
            "Invalid enum value 'x' - at `$.extract.projection.route`",
        ),
    ],
)
def test_what_was_edited_is_refused(path: tuple[str, ...], value: Any, message: str) -> None:
    """Nothing of a run can be changed by hand, and the place of what makes no sense is named."""
    document = decode(encode(small().to_json()))
    part = document
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    with pytest.raises(PlanFailed, match=re.escape(message)):
        ResolvedTable.from_json(document)


@pytest.mark.parametrize(
    "secret",
    ["ALTER USER me IDENTIFIED BY tiger", "begin app.login('me', password => 'tiger'); end;"],
)
def test_what_is_written_down_holds_no_password(secret: str) -> None:
    """A statement with a password is left out, and its option is named for the resume."""
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
    assert "tiger" not in str(kept.to_json())
    assert kept.session_sql_proof
    assert kept.extract.source.session.session_sql == (plain,)
    assert small().without_secrets() == small()
    record = ResolvedTable.from_json(decode(read_record(single_record(run), "/x").tables[0]))
    assert record.extract.source.session.session_sql == ()
    assert record.request.source.session.session_sql == ()
    assert record.session_sql_proof


def test_one_and_several_tables_have_one_form_of_record() -> None:
    """One reader returns the tables; a record marks whether its only table is the whole run."""
    run, options = small(), TablesOptions(destination="/x/{table}")
    single = single_record(run)
    several = record_of((run, run), "/x", options, is_single=False)
    for data, runs in ((single, (run,)), (several, (run, run))):
        assert tuple(read_table(each, "/x") for each in read_record(data, "/x").tables) == runs
    assert read_record(several, "/x").options == options
    assert [is_of_tables(each) for each in (single, several, b"{}")] == [False, True, False]
    assert recorded_tables(single, "/x") == ()
    (table,) = recorded_tables(single, "/out", single=True)
    assert (table.name, table.run_id, table.units) == ("t", run.run_id, len(run.plan.units))
    assert [each.name for each in recorded_tables(several, "/x")] == ["t", "t"]


@pytest.mark.parametrize("data", [b"{}", b"nonsense", b'{"run_id":"x","format_version":5}'])
def test_a_record_that_cannot_be_read_is_named(data: bytes) -> None:
    """With its place, and with what to do; also an edited one."""
    with pytest.raises(UnusableRecord, match="in /x cannot be used: ") as caught:
        first_of(data, "/x")
    assert "start again with the command of the run" in caught.value.hint
    edited = single_record(small()).replace(small().run_id.encode(), b"another")
    with pytest.raises(UnusableRecord, match=r"in /x cannot be used: .*digest"):
        first_of(edited, "/x")
