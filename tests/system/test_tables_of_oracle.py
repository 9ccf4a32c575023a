"""Several tables of Oracle in one run: at one SCN, and what keeps one from being read."""

from __future__ import annotations

import json
from pathlib import Path

from oracle import expected as oracle_expected
from oracle.leg import OracleLeg
from oracle_server.model import Column, Type
from processes import command

ID = Column(name="ID", type=Type(name="NUMBER", precision=9, scale=0), nullable=False)
NOTE = Column(name="NOTE", type=Type(name="VARCHAR2", length=40))
FILE = Column(name="FILE_AT", type=Type(name="BFILE"))


def test_tables_that_match_are_unloaded_at_one_scn(oracle: OracleLeg, tmp_path: Path) -> None:
    """Letters of patterns are read in capitals; each table has its own rows."""
    user = oracle.user()
    for number, name in enumerate(("NIGHT_ONE", "NIGHT_TWO", "NIGHT_OLD", "DAY")):
        oracle.create(name, (ID, NOTE), account=user)
        rows = ((n, f"{name} {n}") for n in range(10 * number + 5))
        oracle.load(name, (ID, NOTE), rows, account=user)
    oracle.create("NIGHT_FILES", (ID, FILE), account=user)
    oracle.settle()
    options = ("--table", "night_*", "--exclude-table", "*_old", "--progress", "none")
    place = f"{tmp_path}/out/{{schema}}/{{table}}"
    error = command.error_of(
        "run", user.url, *options, "--table", "nobody.at_all", "--to", place, status=4,
        env=user.environment,
    )  # fmt: skip
    assert "2 of 4 tables cannot be unloaded" in error
    assert f"{user.name}.NIGHT_FILES: column FILE_AT has the type BFILE" in error
    assert "nobody.at_all" in error
    assert not (tmp_path / "out").exists()
    text = command.run(
        "run", user.url, *options, "--exclude", "FILE_AT", "--to", place, "--json",
        env=user.environment,
    )  # fmt: skip
    found = json.loads(text)
    assert {each["table"]["name"]: each["rows"] for each in found["tables"]} == {
        "NIGHT_FILES": 0, "NIGHT_ONE": 5, "NIGHT_TWO": 15,
    }  # fmt: skip
    assert found["snapshot"]["kind"] == "scn"
    for name, count in (("NIGHT_ONE", 5), ("NIGHT_TWO", 15)):
        directory = tmp_path / "out" / user.name / name
        assert command.manifest_of(directory)["snapshot"] == found["snapshot"]
        (file,) = directory.glob("*.csv")
        _, *records = oracle_expected.csv_records(file.read_text())
        assert sorted(records) == sorted([str(n), f"{name} {n}"] for n in range(count))


def test_rights_on_tables_of_others_are_told_with_the_grants(
    oracle: OracleLeg, tmp_path: Path
) -> None:
    """A table that may be read, but not as of an SCN, is reported before anything is read."""
    owner, reader = oracle.user(), oracle.user()
    oracle.create("SHARED", (ID,), account=owner)
    oracle.run(f'GRANT SELECT ON "SHARED" TO "{reader.name}"', account=owner)
    oracle.settle()
    done = command.ended(
        "run", reader.url, "--table", f"{owner.name}.*", "--to", f"{tmp_path}/{{table}}", "--json",
        env=reader.environment,
    )  # fmt: skip
    assert done.returncode == 4
    error = json.loads(done.stdout)["error"]
    assert error["script"] == (f'GRANT FLASHBACK ON "{owner.name}"."SHARED" TO "{reader.name}";\n')
    assert "may not read it as of an SCN" in error["message"]
