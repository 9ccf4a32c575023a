"""--log-format json: one object a line and nothing else, each as docs/log.schema.json says."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from long_tests import OTHER_ROUTES
from msgspec import Struct
from processes import command
from schemas.json_schema import PAGE, checked
from schemas.option_pages import log_schema

from unloader import cli
from unloader.cli import streams
from unloader.cli.display.log import LogDisplay
from unloader.events import Event

Run = Callable[..., "subprocess.CompletedProcess[str]"]
JSON = ("--log-format", "json")

ENDLESS = "SELECT i, md5(CAST(i AS VARCHAR)) AS m FROM range(100000000000) t(i)"


def events(lines: list[dict[str, Any]]) -> list[str]:
    """Return the events of lines."""
    return [line["event"] for line in lines]


def test_the_schema_in_the_docs_is_the_one_of_the_types() -> None:
    """Make it again: python tests/support/schemas/option_pages.py log > docs/log.schema.json."""
    assert PAGE.read_text("utf-8") == log_schema()


def test_a_line_that_is_not_of_the_contract_is_found() -> None:
    """A missing key, a key too many, another type and an unknown event are each an error."""
    line = json.loads(streams.line_of("notice", {"text": "x"}))
    checked(json.dumps(line))
    for wrong in ({"text": 1}, {"more": 1}, {"version": 2}):
        with pytest.raises(AssertionError):
            checked(json.dumps({**line, **wrong}))
    with pytest.raises(AssertionError):
        checked(json.dumps({key: line[key] for key in line if key != "run_id"}))
    with pytest.raises(StopIteration):
        checked(json.dumps({**line, "event": "other"}))


def test_a_run_that_ends_well(unloader: Run, database: str) -> None:
    """Version, time in UTC, and the id and the totals of the run, as in the manifest."""
    where = ("--where", "id < 10")
    done = unloader("run", database, "--table", "orders", "--to", "out", *where, *JSON, "--json")
    assert done.returncode == 0
    lines = checked(done.stderr)
    assert {"setting", "phase_started", "run_started", "run_finished"} <= set(events(lines))
    assert {line["version"] for line in lines} == {1}
    assert {datetime.fromisoformat(line["at"]).utcoffset() for line in lines} == {timedelta(0)}
    manifest, last = json.loads(done.stdout), lines[-1]
    assert (last["event"], last["run_id"]) == ("run_finished", manifest["run_id"])
    figures = ("rows", "bytes", "seconds")
    assert [last[name] for name in figures] == [manifest["totals"][name] for name in figures]
    assert last["rows"] == 10


@pytest.mark.long(OTHER_ROUTES)
def test_data_on_standard_output(unloader: Run, database: str) -> None:
    """The summary that goes to stderr there is left out: the last line has its figures."""
    done = unloader("run", database, "--table", "orders", "--to", "-", *JSON)
    assert done.returncode == 0
    assert checked(done.stderr)[-1]["event"] == "run_finished"


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (("run", "duckdb:///nowhere/x.db", "--table", "t", "--to", "out", *JSON), "SourceError"),
        (("run", *JSON, "--table", "t"), "UsageError"),
        (("run", "--log-format=json", "--tabel", "t"), "UsageError"),
        (("nothing", *JSON), "UsageError"),
    ],
)
def test_an_error_is_the_last_line(unloader: Run, arguments: tuple[str, ...], kind: str) -> None:
    """Also one of a command line that cannot be read."""
    done = unloader(*arguments)
    last = checked(done.stderr)[-1]
    assert (last["event"], last["kind"], last["exit_code"]) == ("error", kind, done.returncode)
    assert last["message"]
    assert last["hint"]
    assert last["traceback"] is None


def test_by_variable_and_by_job_file(unloader: Run, database: str, tmp_path: Path) -> None:
    """Wherever the format is set, all lines are objects."""
    unknown = {"UNLOADER_LOG_FORMAT": "json", "UNLOADER_PARALELISM": "3"}
    done = unloader("describe", database, "--table", "none", variables=unknown)
    assert events(checked(done.stderr))[0] == "notice"
    assert events(checked(done.stderr))[-1] == "error"
    (tmp_path / "job.toml").write_text(
        f'source = "{database}"\ntable = "none"\nto = "out"\nlog-format = "json"\n'
    )
    assert events(checked(unloader("run", "job.toml").stderr))[-1] == "error"


def test_debug(unloader: Run, database: str) -> None:
    """Tracebacks and the messages of loggers are fields of lines."""
    done = unloader("--debug", "run", database, "--table", "none", "--to", "out", *JSON)
    last = checked(done.stderr)[-1]
    assert last["traceback"].startswith("Traceback")


def test_a_lost_worker_and_a_signal(tmp_path: Path, database: str) -> None:
    """A failed attempt, the next one and the stop are lines, too."""
    to = str(tmp_path / "out")
    run = command.Running("run", database, "--query", ENDLESS, "--to", to, *JSON, "--json")
    begun = Path(to) / "_run" / "staged"
    run.wait_until(lambda: begun.is_dir() and any(begun.iterdir()), "the first file")
    (worker,) = (each for each in run.workers() if "worker-0" in each.cmdline())
    worker.kill()
    assert run.process.stderr is not None
    told = [run.process.stderr.readline()]
    while json.loads(told[-1])["event"] != "unit_failed":
        told.append(run.process.stderr.readline())
    run.signal(signal.SIGINT)
    status, _, rest = run.finish()
    lines = checked("".join((*told, rest)))
    failed = next(line for line in lines if line["event"] == "unit_failed")
    assert failed["retry_in_seconds"] is not None
    assert status == lines[-1]["exit_code"] == 130
    assert events(lines)[-2:] == ["run_stopped", "error"]


PROGRAM = """
import sys, threading, warnings
from unloader.cli import streams
from unloader.redaction import guard_streams
guard_streams()
streams.switch(True)
warnings.warn("from a library", stacklevel=1)
thread = threading.Thread(target=lambda: 1 / 0)
thread.start()
thread.join()
sys.stderr.write("no end")
streams.write("notice", {"text": "ours"})
print("pwd=geheim123", file=sys.stderr)
"""


def test_what_libraries_write_becomes_lines() -> None:
    """Warnings, tracebacks of threads and text without an end are `output`; secrets are hidden."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    lines = checked(done.stderr)
    texts = [line["text"] for line in lines]
    assert any("from a library" in text for text in texts)
    assert any("ZeroDivisionError" in text for text in texts)
    assert texts[-3:] == ["no end", "ours", "pwd=***"]
    assert events(lines)[-3:] == ["output", "notice", "output"]


def test_a_signal_during_the_imports(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line is written without the modules that make the others, and is like them."""
    monkeypatch.setattr(sys, "argv", ["unloader", "run", "x", "--log-format", "json"])
    assert cli._interrupted() == 130
    (line,) = checked(capsys.readouterr().err)
    assert line["kind"] == "Interrupted"


def example(kind: Any) -> Any:
    """Return some value of a type."""
    origin, of = get_origin(kind), get_args(kind)
    if origin is Literal:
        return of[0]
    if origin is tuple:
        return tuple(example(each) for each in of if each is not Ellipsis)
    if origin is not None or of:
        return example(of[0])
    if isinstance(kind, type) and issubclass(kind, Struct):
        hints = get_type_hints(kind)
        return kind(**{name: example(hints[name]) for name in kind.__struct_fields__})
    return {str: "x", int: 1, float: 1.5, bool: True}[kind]


def test_every_event_makes_lines_of_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    """The log lines of every event match the schema."""
    display = LogDisplay(as_json=True, interval_seconds=0.0)
    kinds = get_args(Event)
    assert len(kinds) > 10
    for kind in kinds:
        display(example(kind))
    display.close(False)
    told = events(checked(capsys.readouterr().err))
    assert {"setting", "run_started", "units_kept", "unit_failed", "notice", "progress"} <= set(
        told
    )
