"""An Airflow DAG. One task unloads a table, and passes the totals of its manifest to the next task.

The exit status decides what Airflow does. If another attempt may succeed, Airflow starts the task
again, and the run is resumed. Otherwise the task fails immediately. The DAG is for Airflow 3. In
Airflow 2, import `dag` and `task` from `airflow.decorators`.
"""

from __future__ import annotations

import json
import os
import subprocess
from datetime import datetime, timedelta
from typing import Any

from airflow.exceptions import AirflowException, AirflowFailException
from airflow.sdk import dag, task

JOB = os.environ.get("NIGHTLY_JOB", "/etc/unloader/orders.toml")
FOR_GOOD = (2, 3, 5, 8, 10)
"""Wrong options or configuration, a plan that does not fit, a difference, a failed hook."""


@task(retries=3, retry_delay=timedelta(minutes=10))
def unload(job: str = JOB) -> dict[str, Any]:
    """Run the job to its end; return the facts that the next task needs."""
    command = ["unloader", "run", job, "--resume-or-start", "--json", "--progress", "log"]
    # Progress goes to the log of the task, where standard error is.
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        answer = json.loads(process.communicate()[0] or "{}")
    finally:
        if process.poll() is None:
            # The task was killed or ran out of time: the run stops in good order.
            process.terminate()
            process.wait(timeout=60)
    if process.returncode == 0:
        return {
            "directory": answer["options"]["to"],
            "run_id": answer["run_id"],
            **answer["totals"],
        }
    error = answer.get("error", {})
    text = f"status {process.returncode}: {error.get('message')}. Next: {error.get('hint')}"
    if process.returncode in FOR_GOOD:
        raise AirflowFailException(text)
    raise AirflowException(text)


@task
def load(unloaded: dict[str, Any]) -> None:
    """A placeholder for the task that loads the files."""
    print(f"{unloaded['rows']} rows in {unloaded['directory']}")


@dag(
    schedule="30 2 * * *",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    tags=["unloader"],
)
def nightly_orders() -> None:
    """Unload the table, then load the files."""
    load(unload())


nightly_orders()
