"""The options that only PostgreSQL sources know."""

from __future__ import annotations

from unloader.model import SessionOptions
from unloader.request.options.kinds import FLAG, SECONDS, Parsed
from unloader.request.options.load import MAX_DB_LOAD
from unloader.request.options.option import CONNECTING, Option
from unloader.request.settings import parse_seconds

LONGEST_DAYS = 30
"""Long before that the server is in trouble."""


def _keeping(text: str) -> float:
    seconds = parse_seconds(text)
    if seconds > LONGEST_DAYS * 86_400:
        raise ValueError(f"{text} is more than {LONGEST_DAYS} days, which is too long for a server")
    return seconds


_KEEPING = Parsed("DURATION", _keeping, write=lambda value: f"{value:g}", numbers=(int, float))

OPTIONS = (
    Option(
        name="enable-row-security",
        kind=FLAG,
        section="Session",
        commands=CONNECTING,
        effect="selects",
        field="source.session.enable_row_security",
        owner=SessionOptions,
        record="enable_row_security",
        help="Unload only the rows that policies of row-level security show to the user. Without "
        "this option, a policy that may hide rows is an error. PostgreSQL.",
    ),
    Option(
        name="keep-snapshot",
        example="12h",
        kind=_KEEPING,
        section="Session",
        commands=("plan", "run"),
        effect="none",
        field="source.session.keep_snapshot_seconds",
        owner=SessionOptions,
        kept=False,
        not_for={"streams": "output to a stream cannot be resumed"},
        help="Keep the snapshot for this time from its start, such as 12h, so that a run that "
        "dies can be resumed. The snapshot of a plan is kept while the plan's file exists, "
        "so that its parts can be run. Meanwhile the server keeps old row versions. 0 keeps "
        "no snapshot. PostgreSQL.",
    ),
    Option(
        name="lock-timeout",
        example="30",
        kind=SECONDS,
        section="Session",
        commands=CONNECTING,
        effect="none",
        field="source.session.lock_timeout_seconds",
        owner=SessionOptions,
        help="Longest wait in seconds for a lock that another session has; 0 keeps the "
        "lock_timeout of the server. PostgreSQL.",
    ),
    MAX_DB_LOAD,
)
