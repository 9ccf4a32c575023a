"""The operator in a real Airflow: `airflow dags test` runs the DAG of the example.

Airflow has its own environment. UNLOADER_TEST_AIRFLOW is the path of its command:

    python3 -m venv /tmp/airflow && /tmp/airflow/bin/pip install apache-airflow
    UNLOADER_TEST_AIRFLOW=/tmp/airflow/bin/airflow ./tests/run.sh tests/examples/test_airflow.py
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
from processes import command

ROOT = Path(__file__).parents[2]
AIRFLOW = os.environ.get("UNLOADER_TEST_AIRFLOW") or shutil.which("airflow")


ATTEMPTS = """
import json, sys, threading, time
from pathlib import Path
from airflow.sdk.exceptions import AirflowException
from unload_operator import UnloadOperator

def attempt(seconds=None, **arguments):
    operator = UnloadOperator(task_id="unload", **arguments)
    if seconds is not None:
        def stop():
            while not list(Path(staged).rglob("*.csv*")):
                time.sleep(0.05)
            time.sleep(seconds)
            operator.on_kill()
        threading.Thread(target=stop, daemon=True).start()
    try:
        return operator.execute({})
    except AirflowException as error:
        return [type(error).__name__, str(error)]

job, staged, program = sys.argv[1:]
common = {"job": job, "program": program}
killed = attempt(0.2, options=["--parallelism", "1", "--split", "auto", "--unit-bytes", "4MB"], **common)
killed.append(json.loads(Path(staged, "status.json").read_text())["run_id"])
resumed = attempt(options=["--parallelism", "1", "--split", "auto", "--unit-bytes", "4MB"], **common)
again = attempt(**common)
wrong = attempt(options=["--tabel", "x"], **common)
print("ANSWER", json.dumps([killed, resumed, again, wrong]))
"""


@pytest.mark.long("schedulers")
@pytest.mark.skipif(AIRFLOW is None, reason="needs Airflow: UNLOADER_TEST_AIRFLOW")
def test_airflow_runs_the_job_and_passes_its_totals(tmp_path: Path) -> None:
    """The log has the lines of the run, the next task the totals; a wrong job is not tried again."""
    with duckdb.connect(str(tmp_path / "t.db")) as session:
        session.execute("CREATE TABLE t AS SELECT i FROM range(100) r(i)")
    program = tmp_path / "bin" / "unloader"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m unloader "$@"\n')
    program.chmod(0o755)
    job = tmp_path / "job.toml"
    job.write_text(
        f'source = "duckdb://{tmp_path}/t.db"\ntable = "t"\nto = "{tmp_path}/out/{{table}}"\n'
    )
    env = {
        "PATH": f"{program.parent}:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "examples" / "airflow"),
        "AIRFLOW_CONN_ORDERS": "postgresql://etl:geheim-1234@db01/sales",
        "NIGHTLY_JOB": str(job),
        "PYTHONDONTWRITEBYTECODE": "1",
    }

    def airflow(*arguments: str) -> str:
        done = subprocess.run(
            [str(AIRFLOW), *arguments], env=env, capture_output=True, text=True, timeout=500
        )
        return done.stdout + done.stderr

    airflow("db", "migrate")
    log = airflow("dags", "test", "nightly_orders", "2026-01-02")
    assert f"100 rows in {tmp_path}/out/t" in log, log[-3000:]
    assert "done: 1/1 units, 100 rows" in log
    assert "geheim-1234" not in log
    assert command.manifest_of(tmp_path / "out" / "t")["totals"]["rows"] == 100

    job.write_text(job.read_text() + "tabel = 1\n")
    log = airflow("dags", "test", "nightly_orders", "2026-01-03")
    assert "AirflowFailException" in log, log[-3000:]
    assert "tabel" in log
    assert "up_for_retry" not in log.lower()


@pytest.mark.long("schedulers")
@pytest.mark.skipif(AIRFLOW is None, reason="needs Airflow: UNLOADER_TEST_AIRFLOW")
def test_a_retry_resumes_a_killed_attempt(tmp_path: Path) -> None:
    """A killed task stops its run, and errors tell whether another attempt can help."""
    with duckdb.connect(str(tmp_path / "t.db")) as session:
        session.execute("CREATE TABLE t AS SELECT range AS i FROM range(20000000)")
    job = tmp_path / "job.toml"
    job.write_text(f'source = "duckdb://{tmp_path}/t.db"\ntable = "t"\nto = "{tmp_path}/out"\n')
    program = Path(sys.executable).parent / "unloader"
    done = subprocess.run(
        [
            *(Path(str(AIRFLOW)).parent / "python", "-c", ATTEMPTS),
            *(str(job), f"{tmp_path}/out/_run", str(program)),
        ],
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path),
            "AIRFLOW_HOME": str(tmp_path / "airflow"),
            "PYTHONPATH": str(ROOT / "examples" / "airflow"),
        },
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    answer = next(line for line in done.stdout.splitlines() if line.startswith("ANSWER "))
    killed, resumed, again, wrong = json.loads(answer.removeprefix("ANSWER "))
    assert killed[0] == "AirflowException", killed
    assert "status 130" in killed[1]
    assert resumed["run_id"] == killed[2]
    assert resumed["rows"] == 20_000_000
    assert again[0] == "AirflowException"
    assert "status 6" in again[1]
    assert wrong[0] == "AirflowFailException"
    assert "status 2" in wrong[1]
    assert "Next: " in wrong[1]
