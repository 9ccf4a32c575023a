"""The examples for cron and systemd work as described, as far as a test can try them."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest
from long_tests import OTHER_ROUTES
from processes import command

ROOT = Path(__file__).resolve().parents[2]
NIGHTLY = ROOT / "examples" / "nightly"


class Host:
    """A machine with the files of the examples at other places."""

    def __init__(self, directory: Path) -> None:
        """Install the program, a database and the job."""
        self.directory = directory
        for name in ("bin", "extract/done", "etc", "log", "textfile"):
            (directory / name).mkdir(parents=True)
        program = directory / "bin" / "unloader"
        program.write_text(
            f'#!/bin/sh\nPYTHONPATH={ROOT} exec {shlex.quote(sys.executable)} -m unloader "$@"\n'
        )
        program.chmod(0o755)
        database = directory / "s.db"
        with duckdb.connect(str(database)) as connection:
            connection.execute("CREATE TABLE ORDERS AS SELECT i AS id FROM range(100) t(i)")
        password = directory / "etc" / "orders.password"
        password.write_text("geheim-1234\n")
        password.chmod(0o600)
        job = self.moved((NIGHTLY / "orders.toml").read_text())
        job = job.replace("oracle://etl@db01:1521/SALES", f"duckdb://{database}")
        (directory / "etc" / "orders.toml").write_text(job)

    def moved(self, text: str) -> str:
        """Return a text with the paths of the examples as they are here."""
        here = {
            "/opt/unloader/bin": "bin",
            "/etc/unloader": "etc",
            "/extract": "extract",
            "/var/log/unloader": "log",
            "/var/lib/node_exporter/textfile": "textfile",
        }
        for path, name in here.items():
            text = text.replace(path, str(self.directory / name))
        return text

    def manifest(self) -> dict[str, Any]:
        """Return the manifest of the newest run, once all that belongs to a run was found."""
        found = command.manifest_of(self.directory / "extract" / "ORDERS" / "latest")
        assert (self.directory / "extract" / "done" / f"{found['run_id']}.json").is_file()
        metrics = (self.directory / "textfile" / "unloader_orders.prom").read_text()
        assert re.search(r"unloader_run_exit_status{.*} 0.0", metrics)
        return found


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_the_line_of_cron(host: Host) -> None:
    """In cron's bare environment it unloads once a day, and writes a log of JSON."""
    lines = (NIGHTLY / "crontab").read_text().splitlines()
    lines = [host.moved(line) for line in lines if line.strip() and not line.startswith("#")]
    *settings, job = lines
    variables = dict(line.split("=", 1) for line in settings)
    when, text = job.split(None, 5)[:5], job.split(None, 5)[5]
    assert len(when) == 5
    assert not re.search(r"(?<!\\)%", text), "cron ends the command at a bare %"
    runs = []
    for _ in range(2):
        done = subprocess.run(
            ["/bin/sh", "-c", text.replace(r"\%", "%")],
            env={"HOME": str(host.directory), "SHELL": "/bin/sh", "LOGNAME": "u", **variables},
            cwd=host.directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        log = (host.directory / "log" / "orders.log").read_text()
        assert done.returncode == 0, log
        runs.append(host.manifest()["run_id"])
    assert runs[0] == runs[1]
    assert "is finished: nothing was done" in log.splitlines()[-1]
    assert {json.loads(line)["version"] for line in log.splitlines()} == {1}


@pytest.fixture
def units(host: Host) -> Path:
    """The unit files of systemd, with the paths of this machine."""
    directory = host.directory / "units"
    directory.mkdir()
    for name in ("unloader@.service", "unloader@.timer"):
        (directory / name).write_text(host.moved((NIGHTLY / name).read_text()))
    return directory


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_takes_the_unit_files(units: Path) -> None:
    """`systemd-analyze verify` has nothing to say; of a misspelt key it has."""

    def complaints() -> list[str]:
        files = [str(units / "unloader@orders.service"), str(units / "unloader@orders.timer")]
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", *files], capture_output=True, text=True
        )
        return [line for line in done.stderr.splitlines() if "unloader@" in line]

    for name in ("service", "timer"):
        shutil.copy(units / f"unloader@.{name}", units / f"unloader@orders.{name}")
    assert complaints() == []
    service = units / "unloader@orders.service"
    service.write_text(service.read_text().replace("TimeoutStopSec", "TimeoutStopSecs"))
    assert "TimeoutStopSecs" in "".join(complaints())


@pytest.mark.long(OTHER_ROUTES)
def test_what_systemd_starts(host: Host, units: Path) -> None:
    """The command of the service runs with the credential, and without any other variable."""
    text = (units / "unloader@.service").read_text().replace("%i", "orders")
    keys = dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))
    name, _, path = keys["LoadCredential"].partition(":")
    credentials = host.directory / "credentials"
    credentials.mkdir(mode=0o700)
    shutil.copy(path, credentials / name)
    done = subprocess.run(
        shlex.split(keys["ExecStart"]),
        env={"CREDENTIALS_DIRECTORY": str(credentials), "PATH": "/usr/bin:/bin"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert host.manifest()["totals"]["rows"] == 100
