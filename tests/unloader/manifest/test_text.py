"""The text of manifests, parts of which are put into words once for many."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from unloader.json_text import indented
from unloader.manifest.asked import ColumnRecord, OptionsRecord, SettingRecord, SourceRecord
from unloader.manifest.digest import with_digest
from unloader.manifest.model import Manifest, SeatRecord, TotalsRecord, WorkerRecord, to_json
from unloader.manifest.text import manifest_bytes
from writers.model import Compression, TextFormat

COLUMN = ColumnRecord(
    name="id", source_type="x", output_type="text", nullable=True, lossless=True, note=""
)
PLAIN = Manifest(
    run_id="r",
    table=None,
    query='SELECT "to": ""',
    snapshot=None,
    options=OptionsRecord(
        to="/out",
        where='"to": ""',
        format="csv",
        compression=Compression(),
        dialect=TextFormat(),
    ),
    columns=(COLUMN, replace(COLUMN, name="to"), COLUMN),
    settings=(SettingRecord(name="to", value='"to": ""', origin="command line"),),
    units=(),
    totals=TotalsRecord(rows=0, bytes=0, files=0, seconds=0.0, cpu_seconds=0.0),
)


def whole(manifest: Manifest) -> bytes:
    """Return the text as it is made of the whole document at once."""
    document = to_json(replace(manifest, digest=None))
    return with_digest((indented(document) + "\n").encode())


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"source": SourceRecord(kind="k", location="l", server_version="1")},
        {"source": SourceRecord(kind="k", location="l", server_version="日本")},
        {"columns": (), "settings": ()},
        {"columns": (replace(COLUMN, nullable=False), COLUMN)},
        {"options": replace(PLAIN.options, to=("/one", '/o"ther'))},
        {"options": replace(PLAIN.options, retry_delay=0.5)},
        {"options": replace(PLAIN.options, dialect=TextFormat(delimiter=";"))},
        {"options": replace(PLAIN.options, compression=Compression(codec="gzip", level=1))},
        {"options": replace(PLAIN.options, transform=({"rename": {"a": "b"}}, {"to": ""}))},
        {"digest": "sha256:0"},
    ],
)
def test_the_text_is_that_of_the_whole_document(changes: dict[str, Any]) -> None:
    """To the byte, whatever manifests were written before it, and however often."""
    manifest = replace(PLAIN, **changes)
    for _ in range(2):
        assert manifest_bytes(manifest) == whole(manifest)
        assert manifest_bytes(PLAIN) == whole(PLAIN)


def test_workers_that_differ_are_told_apart() -> None:
    """Each by what it did."""
    idle = WorkerRecord(
        worker=0,
        seat=SeatRecord(node=0, cpus=(0, 1)),
        ran_on=(0, 1),
        local_share=1.0,
        memory_bytes_by_node={"0": 5},
        file_bytes_by_node=None,
        units=0,
        rows=0,
        bytes=0,
        seconds=0.0,
        restarts=0,
        note=None,
    )
    for workers in ((idle, replace(idle, worker=1)), (idle, replace(idle, units=1)), (idle,)):
        manifest = replace(PLAIN, workers=workers)
        assert manifest_bytes(manifest) == whole(manifest)
