"""Plans in files: a written plan is read back, an edited one is refused."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from partition_planner.errors import PlanError
from partition_planner.model import (
    Plan,
)


def test_digest_is_the_hash_of_the_canonical_json(made: Plan) -> None:
    """Anybody can recompute the digest from the plan's own JSON."""
    written = msgspec.to_builtins(made)
    content = {name: written[name] for name in ("table", "partitions", "units", "limits")}
    canonical = json.dumps(content, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    assert made.digest == hashlib.sha256(canonical.encode()).hexdigest()


def _selector(plan: dict[str, Any], kind: str) -> dict[str, Any]:
    """The first selector of a kind."""
    selectors: list[dict[str, Any]] = [unit["selectors"][0] for unit in plan["units"]]
    return next(each for each in selectors if each["kind"] == kind)


def _unit(plan: dict[str, Any], kind: str) -> dict[str, Any]:
    """The first unit with a selector of a kind."""
    units: list[dict[str, Any]] = plan["units"]
    return next(unit for unit in units if unit["selectors"][0]["kind"] == kind)


Edit = Callable[[dict[str, Any]], object]
EDITS: dict[str, tuple[Edit, str]] = {
    "a smaller range": (lambda j: _selector(j, "row_range").update(last=1), "edited"),
    "a piece removed": (lambda j: j["units"].remove(_unit(j, "row_range")), "edited"),
    "a unit doubled": (lambda j: j["units"].append(j["units"][0]), "edited"),
    "units reordered": (lambda j: j["units"].reverse(), "edited"),
    "no unit": (lambda j: j["units"].clear(), "no units"),
    "another table": (lambda j: j["table"].update(name="u"), "edited"),
    "a column removed": (lambda j: j["table"]["columns"].pop(), "edited"),
    "another parallelism": (lambda j: j["limits"].update(parallelism=9), "edited"),
    "another digest": (lambda j: j.update(digest="0" * 64), "edited"),
    "another makespan": (lambda j: j.update(makespan=1.0), "makespan"),
    "another bound": (lambda j: j.update(lower_bound=0), "lower_bound"),
    "another measure": (lambda j: j.update(cost_unit="rows"), "cost_unit"),
    "a missing key": (lambda j: j["table"].pop("columns"), "missing required field `columns`"),
    "an unknown key": (
        lambda j: j["units"][1].update(where="1=1"),
        "unknown field `where` - at `$.units[1]`",
    ),
    "a wrong type": (lambda j: j["units"][2].update(rows="7"), "`$.units[2].rows`"),
    "a true number": (lambda j: j["limits"].update(parallelism=True), "`$.limits.parallelism`"),
    "a fraction": (lambda j: j["limits"].update(unit_bytes=1.0), "`$.limits.unit_bytes`"),
    "no worker": (lambda j: j["limits"].update(parallelism=0), "Parallelism 0"),
    "an unknown selector": (lambda j: j["units"][0]["selectors"][0].update(kind="sql"), "'sql'"),
    "a broken relation": (
        lambda j: j["table"]["partitions"][0].update(relation=["s"]),
        "`$.table.partitions[0].relation`",
    ),
    "a list for a table": (lambda j: j.update(table=[]), "got `array` - at `$.table`"),
    "an extent of one end": (
        lambda j: j["table"]["partitions"][0].update(extents=[[5]]),
        "`$.table.partitions[0].extents[0]`",
    ),
    "an extent of flags": (
        lambda j: j["table"].update(extents=[[False, True]]),
        "`$.table.extents[0][0]`",
    ),
    "a key that is no text": (
        lambda j: j["table"].update(keys={"column": "K", "keys": ["1", 2]}),
        "`$.table.keys.keys[1]`",
    ),
    "another kind of partition": (
        lambda j: j["table"]["partitions"][1].update(kind="range"),
        "`$.table.partitions[1].kind`",
    ),
    "another segment": (lambda j: _selector(j, "row_range").update(object_id=9), "edited"),
    "another piece of keys": (lambda j: _selector(j, "key_range").update(last="?"), "edited"),
    "a partition forgotten": (
        lambda j: j.update(
            units=[u for u in j["units"] if u["selectors"][0]["partition"] != "year/1"]
        ),
        "leave out year/1",
    ),
    "fewer partitions": (
        lambda j: j.update(partitions=["year/0", "year/1", "year/2"]),
        "read year/3, which was not requested",
    ),
    "a unit of the whole table": (
        lambda j: j["units"][0]["selectors"].append({"kind": "whole_table"}),
        "read the whole table, which was not requested",
    ),
    "a unit of nothing": (lambda j: j["units"][0]["selectors"].clear(), "`$.units[0].selectors`"),
    "a newer version": (
        lambda j: j.update(format_version=6),
        "Invalid value 6 - at `$.format_version`",
    ),
    "an older version": (
        lambda j: j.update(format_version=4),
        "Invalid value 4 - at `$.format_version`",
    ),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_plan_is_refused(made: Plan, edit: str) -> None:
    """Any change to a stored plan is refused with a message that names it."""
    change, words = EDITS[edit]
    changed = json.loads(msgspec.json.encode(made))
    change(changed)
    with pytest.raises((PlanError, msgspec.ValidationError)) as caught:
        msgspec.convert(changed, Plan).check()
    assert words in str(caught.value)
