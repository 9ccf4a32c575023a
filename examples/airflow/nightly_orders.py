"""A DAG with the operator: unload the table, then load the files."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from typing import Any

from airflow.sdk import dag, task
from unload_operator import UnloadOperator


@task
def load(unloaded: dict[str, Any]) -> None:
    """A placeholder for the task that loads the files."""
    print(f"{unloaded['rows']} rows in {unloaded['directory']}")


@dag(schedule="30 2 * * *", start_date=datetime(2026, 1, 1), catchup=False, max_active_runs=1)
def nightly_orders() -> None:
    """One run for each night."""
    unload = UnloadOperator(
        task_id="unload",
        job=os.environ.get("NIGHTLY_JOB", "/etc/unloader/orders.toml"),
        conn_id="orders",
        retries=3,
        retry_delay=timedelta(minutes=10),
    )
    load(unload.output)


nightly_orders()
