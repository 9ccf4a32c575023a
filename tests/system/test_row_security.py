"""Row level security: an error by default, the user's own rows with --enable-row-security."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from processes import command

SETUP = """
CREATE TABLE plain (id int); INSERT INTO plain SELECT generate_series(1, 1000);
CREATE TABLE parts (id int, k int) PARTITION BY LIST (k);
CREATE TABLE parts_0 PARTITION OF parts FOR VALUES IN (0);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1);
INSERT INTO parts SELECT g, g % 2 FROM generate_series(1, 1000) g;
CREATE TABLE shut (id int); INSERT INTO shut VALUES (1);
CREATE TABLE inner_only (id int, k int) PARTITION BY LIST (k);
CREATE TABLE inner_0 PARTITION OF inner_only FOR VALUES IN (0);
CREATE TABLE inner_1 PARTITION OF inner_only FOR VALUES IN (1);
INSERT INTO inner_only SELECT g, g % 2 FROM generate_series(1, 1000) g;
ALTER TABLE plain ENABLE ROW LEVEL SECURITY; ALTER TABLE parts ENABLE ROW LEVEL SECURITY;
ALTER TABLE shut ENABLE ROW LEVEL SECURITY; ALTER TABLE inner_0 ENABLE ROW LEVEL SECURITY;
CREATE POLICY few ON plain FOR SELECT TO guest USING (id <= 10);
CREATE POLICY others ON plain FOR DELETE TO guest USING (true);
CREATE POLICY low ON parts USING (id <= 100);
CREATE POLICY none ON inner_0 USING (false);
GRANT SELECT ON ALL TABLES IN SCHEMA public TO guest;
VACUUM ANALYZE;
"""


@pytest.fixture(scope="module")
def url(postgres: Any) -> str:
    """A database as a user sees it whom policies concern."""
    made: str = postgres.database("policies")
    postgres.run("DROP ROLE IF EXISTS guest; CREATE ROLE guest LOGIN", url=made)
    postgres.run(SETUP, url=made)
    return made.replace("postgres@", "guest@", 1)


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ("plain", "of public.plain, by policy few"),
        ("parts", "of public.parts, by policy low"),
        ("shut", "of public.shut, because no policy shows any row to this user"),
    ],
)
def test_policy_that_may_hide_rows_is_an_error(
    url: str, tmp_path: Path, table: str, why: str
) -> None:
    """It names the table, the policy and the option; nothing is written."""
    error = command.error_of("run", url, "--table", table, "--to", str(tmp_path / "o"), status=4)
    assert f"row-level security may hide rows {why}" in error
    assert "--enable-row-security" in error
    assert not (tmp_path / "o").exists()


def test_query_that_a_policy_concerns_is_an_error(url: str, tmp_path: Path) -> None:
    """There the server names the table."""
    error = command.error_of(
        "run", url, "--query", "SELECT * FROM plain", "--to", str(tmp_path / "o"), status=4
    )
    assert '"plain"' in error
    assert "--enable-row-security" in error


@pytest.mark.parametrize(
    ("what", "rows"),
    [
        (("--table", "plain", "--split", "range"), 10),
        (("--table", "parts"), 100),
        (("--table", "shut"), 0),
        (("--query", "SELECT * FROM plain"), 10),
    ],
    ids=["plain", "parts", "shut", "query"],
)
def test_option_unloads_what_the_policies_let_through(
    url: str, tmp_path: Path, what: tuple[str, ...], rows: int
) -> None:
    """The rows equal a SELECT from the table; the manifest tells, and verify goes by it."""
    to = str(tmp_path / "o")
    command.run("run", url, *what, "--to", to, "--enable-row-security", "--no-header", "--quiet")
    manifest = command.manifest_of(tmp_path / "o")
    assert manifest["totals"]["rows"] == rows
    assert manifest["options"]["enable_row_security"] is True
    written = sum(len(path.read_text().split()) for path in (tmp_path / "o").glob("*.csv"))
    assert written == rows
    command.run("verify", to, url)
