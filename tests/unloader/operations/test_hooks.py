"""--on-success and --on-failure: the right command, its facts, its output and its end."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from processes import command
from schemas.json_schema import checked

from unloader.operations import hooks
from unloader.operations.hooks import PREFIX, Account, run_hook

DUMP = "env -0 > facts"


def facts(directory: Path) -> dict[str, str]:
    """Return the environment that a command has written down."""
    pairs = (directory / "facts").read_text().rstrip("\0").split("\0")
    return dict(pair.partition("=")[::2] for pair in pairs)


def test_after_a_run(source: str, to: tuple[str, ...], tmp_path: Path) -> None:
    """The facts are in its environment, a password is not; an inner call reads no option."""
    hooks = ("--on-success", f"cd {tmp_path}; {DUMP}", "--on-failure", f"touch {tmp_path}/wrong")
    secrets = {"UNLOADER_PASSWORD": "geheim-123", "PGPASSWORD": "geheim-456"}
    secrets["UNLOADER_MASKING_KEY_OF_ANOTHER"] = "geheim-789"
    command.run("run", source, *to, *hooks, env=secrets)
    manifest = command.manifest_of(tmp_path / "out")
    found = facts(tmp_path)
    ours = {name.removeprefix(PREFIX): found[name] for name in found if name.startswith(PREFIX)}
    assert float(ours.pop("SECONDS")) > 0
    assert ours == {
        "ID": manifest["run_id"],
        "STATUS": "0",
        "TABLE": "main.t",
        "SOURCE": "duckdb",
        "DEST": str(tmp_path / "out"),
        "MANIFEST": str(tmp_path / "out" / "_manifest.json"),
        "ROWS": "500",
        "BYTES": str(manifest["totals"]["bytes"]),
        "UNITS": "1",
        "ERROR": "",
        "ERROR_KIND": "",
        "HINT": "",
        # Variables of a run over several tables, and of one with routes.
        **dict.fromkeys(("TABLES", "TABLES_DONE", "TABLES_FAILED", "PARTIAL_MANIFEST"), ""),
        "ROUTES": "",
    }
    assert not any("geheim" in value for value in found.values())
    assert not (tmp_path / "wrong").exists()


SECRETS = {
    "UNLOADER_PASSWORD": "cnry-01",
    "PGPASSWORD": "cnry-02",
    "MYSQL_PWD": "cnry-03",
    "PGSSLPASSWORD": "cnry-04",
    "AWS_SECRET_ACCESS_KEY": "cnry/05+x",
    "AWS_SESSION_TOKEN": "cnry-06",
    "AZURE_STORAGE_KEY": "cnry-07==",
    "AZURE_STORAGE_CONNECTION_STRING": "AccountName=x;AccountKey=cnry-08==;Suffix=x",
    "AZURE_STORAGE_SAS_TOKEN": "sv=1&sig=cnry-09",
    "GOOGLE_SERVICE_ACCOUNT_KEY": '{"private_key": "cnry-10"}',
    "PYICEBERG_CATALOG__LAKE__CREDENTIAL": "client:cnry-11",
    "PYICEBERG_CATALOG__LAKE__URI": "postgresql+psycopg2://etl:cnry-12@db01/x",
    "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20cnry-13",
    "UNLOADER_MASKING_KEY_X": "cnry-14",
    "UNLOADER_SESSION_SQL": "SET ROLE r IDENTIFIED BY cnry16",
    "STRIPE_API_KEY": "cnry-17",
    "DBPASS": "cnry-18",
    "https_proxy": "http://joe:cnry-19@proxy:3128",
    "ODDLY_CALLED": "cnry-20",
}


def test_no_variable_is_passed_on_unasked(source: str, to: tuple[str, ...], tmp_path: Path) -> None:
    """A secret may have any name, so a command gets what programs need to start, and our facts."""
    dump = f"cd {tmp_path}; {DUMP}"
    command.run("run", source, *to, "--on-success", dump, env={**SECRETS, "LC_TIME": "C"})
    found = facts(tmp_path)
    assert not any("cnry" in value for value in found.values())
    # The shell itself adds the last two.
    others = {name for name in found if not name.startswith(PREFIX)} - {"SHLVL", "_", "OLDPWD"}
    assert others <= {*hooks.PASSED, "LC_TIME"}
    assert {"PATH", "HOME", "LC_TIME"} <= others


def test_a_variable_that_is_named_is_passed_on(
    source: str, to: tuple[str, ...], tmp_path: Path
) -> None:
    """Its value gets through whole, and is hidden in the command's output."""
    names = ",".join(SECRETS)
    dump = f"cd {tmp_path}; {DUMP}; env"
    passing = ("--hook-env", names, "--hook-env", "NOT_SET_1")
    done = command.ended("run", source, *to, *passing, "--on-success", dump, env=SECRETS)
    assert done.returncode == 0
    found = facts(tmp_path)
    assert {name: found[name] for name in SECRETS} == SECRETS
    assert "--hook-env: the command does not get these unset variables: NOT_SET_1" in done.stderr
    shown = [line for line in done.stderr.splitlines() if "cnry" in line]
    assert shown == ["ODDLY_CALLED=cnry-20"]


def test_a_value_is_not_taken_for_a_name(source: str, to: tuple[str, ...]) -> None:
    """`NAME=VALUE` is refused, and not shown."""
    done = command.ended("run", source, *to, "--hook-env", "DB_PASS=cnry-1")
    assert done.returncode == 2
    assert "give names without values" in done.stderr
    assert "cnry" not in done.stderr


def test_after_a_failure(source: str, to: tuple[str, ...], tmp_path: Path) -> None:
    """Message and status of the error; the command's own failure is logged and changes neither."""
    hooks = ("--on-failure", f"cd {tmp_path}; {DUMP}; exit 3", "--on-success", "false")
    done = command.ended("run", source, *to, "--columns", "none", *hooks)
    assert done.returncode == 2
    found = facts(tmp_path)
    assert (found[f"{PREFIX}STATUS"], found[f"{PREFIX}ERROR_KIND"]) == ("2", "UsageError")
    assert "none" in found[f"{PREFIX}ERROR"]
    assert found[f"{PREFIX}MANIFEST"] == ""
    assert "the command of --on-failure failed: it ended with status 3" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("unloader: error: ")


def test_a_command_that_fails_after_a_run(source: str, to: tuple[str, ...], tmp_path: Path) -> None:
    """The run is complete, and a special status names the failure; the metrics do, too."""
    metrics = tmp_path / "x.prom"
    hook = ("--on-success", "echo to both; echo streams >&2; exit 4")
    done = command.ended("run", source, *to, *hook, "--json", "--metrics-file", str(metrics))
    assert done.returncode == 10
    assert json.loads(done.stdout)["error"]["kind"] == "FollowUpFailed"
    lines = done.stderr.splitlines()
    assert lines[-3:-1] == ["to both", "streams"]
    assert "the run is complete, but the command of --on-success failed: it ended with" in lines[-1]
    assert (tmp_path / "out" / "_manifest.json").is_file()
    assert "unloader_run_exit_status{" in metrics.read_text()
    assert " 10.0" in metrics.read_text()


def test_its_output_in_a_log_of_json(source: str, to: tuple[str, ...]) -> None:
    """Each line is an object, also when the data has standard output."""
    arguments = (*to[:2], "--to", "-", "--log-format", "json")
    done = command.ended("run", source, *arguments, "--on-success", "echo a; printf b")
    assert done.stdout.splitlines()[:2] == ["id", "0"]
    told = [line for line in checked(done.stderr) if line["event"] == "hook"]
    assert [(line["hook"], line["text"]) for line in told] == [
        ("on-success", "a"),
        ("on-success", "b"),
    ]


def test_after_a_signal(source: str, tmp_path: Path) -> None:
    """A run that is stopped has failed: its command runs, and the status is the signal's."""
    query = "SELECT i, md5(CAST(i AS VARCHAR)) AS m FROM range(100000000000) t(i)"
    out = tmp_path / "out"
    hook = ("--on-failure", f"echo $UNLOADER_RUN_STATUS > {tmp_path}/status")
    run = command.Running("run", source, "--query", query, "--to", str(out), *hook)
    staged = out / "_run" / "staged"
    run.wait_until(lambda: staged.is_dir() and any(staged.iterdir()), "the first file")
    run.signal(signal.SIGTERM)
    assert run.finish()[0] == 130
    assert (tmp_path / "status").read_text() == "130\n"


def account() -> Account:
    """A run that is over."""
    found = Account(labels={"table": "t", "source": "duckdb", "destination": "/x"}, started_at=0.0)
    found.end(1.0, None)
    return found


def test_the_time_limit_ends_all_that_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shell's children, too; and the ones that take no notice of the first signal."""
    monkeypatch.setattr(hooks, "_GRACE_SECONDS", 0.2)
    told: list[str] = []
    text = f"echo begun; trap '' TERM; (sleep 1000; touch {tmp_path}/late) & wait; sleep 1000"
    why = run_hook(text, account(), told.append, lambda: False, 5.5)
    assert why == "it was ended after 5.5 s (--hook-timeout)"
    assert told == ["begun"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("exit 0", ""),
        ("exit 9", "it ended with status 9"),
        ("kill -9 $$", "it was killed by SIGKILL"),
        ("nowhere-to-be-found-x", "it ended with status 127"),
        ("sleep 60 & echo left behind", ""),
        ("exec >&- 2>&-; exit 5", "it ended with status 5"),
        ("cat", ""),
    ],
)
def test_how_it_ends(text: str, why: str) -> None:
    """Status and signal are reported; leftover processes and a closed output delay nothing."""
    assert run_hook(text, account(), lambda line: None, lambda: False) == why


def test_a_signal_ends_it() -> None:
    """A signal to the program while it waits for the command ends the command, too."""
    why = run_hook("sleep 1000", account(), print, lambda: True)
    assert why == "it was ended by a signal"


def test_output_of_any_kind() -> None:
    """Bytes that are not text, a line without end and one of megabytes come through."""
    told: list[str] = []
    text = r"printf 'a\377\nb'; head -c 3000000 /dev/zero | tr '\0' 'x'"
    assert run_hook(text, account(), told.append, lambda: False) == ""
    assert told[0] == r"a\xff"
    assert sum(map(len, told[1:])) == 3_000_001
