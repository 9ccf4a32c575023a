"""The operator in a real Airflow: `airflow dags test` runs the DAG of the example.

Airflow has its own environment. UNLOADER_TEST_AIRFLOW is the path of its command:

    python3 -m venv /tmp/airflow && /tmp/airflow/bin/pip install apache-airflow
    UNLOADER_TEST_AIRFLOW=/tmp/airflow/bin/airflow ./tests/run.sh tests/examples/test_airflow.py
"""

from __future__ import annotations

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
