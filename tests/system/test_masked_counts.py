"""The database's error about a row that it cannot count is not shown where columns are masked."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from processes import command
from requested import requested

from unloader import api
from unloader.errors import SourceError
from unloader.events import Event, UnitFinished

if TYPE_CHECKING:
    from conftest import PostgresServer

ENV = {"UNLOADER_MASKING_KEY_DEFAULT": base64.b64encode(bytes(range(32))).decode()}
SECRET = "geheim-4711"


@pytest.mark.long("masked runs")
def test_an_error_of_the_count_shows_no_value(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a run nor `verify` shows it; without masks the error is the database's."""
    monkeypatch.setenv("UNLOADER_MASKING_KEY_DEFAULT", ENV["UNLOADER_MASKING_KEY_DEFAULT"])
    url = postgres.database("masked_counts")
    postgres.run("CREATE TABLE t (id int, note text); INSERT INTO t VALUES (1, '1')", url=url)

    def spoil(event: Event) -> None:
        if isinstance(event, UnitFinished):
            postgres.run(f"UPDATE t SET note = '{SECRET}'", url=url)

    def mended() -> None:
        postgres.run("UPDATE t SET note = '1'", url=url)

    line = ("run", url, "--table", "t", "--where", "note::int > 0", "--consistency", "none")
    mask = ("--mask", "note=hmac")
    with pytest.raises(SourceError) as known:
        api.unload(requested(*line, *mask, "--to", str(tmp_path / "a")), observe=spoil)
    told = f"{known.value} {known.value.__cause__} {known.value.__context__}"
    assert SECRET not in told
    assert "not shown, because columns are masked" in told
    mended()
    with pytest.raises(SourceError, match=SECRET):
        api.unload(requested(*line, "--to", str(tmp_path / "b")), observe=spoil)
    mended()
    command.run(*line, *mask, "--to", str(tmp_path / "c"), env=ENV)
    postgres.run(f"UPDATE t SET note = '{SECRET}'", url=url)
    said = command.error_of("verify", str(tmp_path / "c"), url, status=4)
    assert "not shown, because columns are masked" in said
    assert SECRET not in said
