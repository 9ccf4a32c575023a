"""A journal in a store whose objects cannot grow."""

from __future__ import annotations

import pytest
from object_stores.faults import Rule, faulty
from object_stores.s3_server import S3Server

from unloader.storage.objects.object_staging import Journal, Room, read_journal
from writers.errors import WriteError
from writers.objects import bucket


def test_lines_stay_in_order(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many objects they are in, and where those are made one."""
    monkeypatch.setattr("unloader.storage.objects.object_staging._MOST_PIECES", 7)
    room = Room(s3.place("journal/order"))
    lines = [b"line %d\n" % number for number in range(100)]
    written = Journal(room, "run")
    for number, line in enumerate(lines):
        written.append(line)
        if number % 3:
            written.settle()
    written.close()
    assert read_journal(room, "run") == b"".join(lines)
    assert len(room.bucket.within(room.record("run", "journal.jsonl/"))) <= 8
    again = Journal(room, "run")
    again.replace(b"anew\n")
    again.append(b"more\n")
    again.close()
    assert read_journal(room, "run") == b"anew\nmore\n"


def test_a_line_that_is_not_written_is_reported(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next append and the next wait report that the store refused."""
    monkeypatch.setitem(bucket._RETRIES, "max_retries", 2)
    rules = Rule("put", "broken", 10**6, key="journal.jsonl")
    with faulty(s3, rules) as (broken, _):
        written = Journal(Room(broken.place("journal/broken")), "run")
        written.append(b"1\n")
        with pytest.raises(WriteError, match="journal"):
            written.settle()
        with pytest.raises(WriteError, match="journal"):
            written.append(b"2\n")
        written.close()
