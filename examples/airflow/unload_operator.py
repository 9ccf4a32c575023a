"""An Airflow operator that runs a job of unloader, for Airflow 3.

Put this file where the DAGs of the site find it. The program `unloader` may be in another
environment than Airflow, since the operator starts it as a command.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from threading import Thread
from typing import Any

from airflow.sdk import BaseHook, BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

FOR_GOOD = (1, 2, 3, 5, 8)
"""Statuses that another attempt does not change: a person has to read the error first."""
COMPLETE = (0, 9, 10)
"""All files are published. After 9 and 10 a later step has failed, and the log has the reason."""
STOP_SECONDS = 60.0
"""Time for a run to stop in good order; Airflow kills the task itself later."""


class UnloadOperator(BaseOperator):
    """Run a job file to its end, and return the totals of its manifest.

    `job` is the path of the job file. `options` are further options of `unloader run`. `variables`
    are environment variables, such as those that the job file names; all three are templates.
    `conn_id` names a connection with the password of the database. `program` is the
    command `unloader`, with its path where it is not on the PATH of Airflow.

    Each attempt has `--resume-or-start`, so a retry continues the run of the attempt before. Each
    line that the program writes is a line in the log of the task. Where no attempt can help,
    AirflowFailException ends the task without further retries; else the error is
    AirflowException.
    """

    template_fields: Sequence[str] = ("job", "options", "variables")
    template_ext: Sequence[str] = ()
    ui_color = "#d6e9f8"

    def __init__(
        self,
        *,
        job: str,
        options: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
        conn_id: str | None = None,
        program: str = "unloader",
        **others: Any,
    ) -> None:
        super().__init__(**others)
        self.job = job
        self.options = list(options)
        self.variables = dict(variables or {})
        self.conn_id = conn_id
        self.program = program
        self._process: subprocess.Popen[str] | None = None

    def execute(self, context: Any) -> dict[str, Any]:
        """Run the job; return its directory, its run id, and the totals of the manifest."""
        command = [self.program, "run", self.job, *self.options]
        command += ["--resume-or-start", "--json", "--progress", "log"]
        environment = {**os.environ, **self.variables}
        if self.conn_id:
            password = BaseHook.get_connection(self.conn_id).password
            environment["UNLOADER_PASSWORD"] = password or ""
        with subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=environment,
        ) as process:
            self._process = process
            assert process.stdout is not None
            assert process.stderr is not None
            answers: list[str] = []
            reader = Thread(target=lambda: answers.append(process.stdout.read()), daemon=True)
            reader.start()
            last = ""
            for line in process.stderr:
                last = line.rstrip()
                self.log.info("%s", last)
            reader.join()
            status = process.wait()
        if status in COMPLETE:
            answer = json.loads(answers[0])
            return {
                "directory": answer["options"]["to"],
                "run_id": answer["run_id"],
                **answer["totals"],
            }
        # The last line of the log is the error, with what to do next.
        text = f"unloader ended with status {status}: {last}"
        raise (AirflowFailException if status in FOR_GOOD else AirflowException)(text)

    def on_kill(self) -> None:
        """Ask the run to stop; it keeps its finished work units for the next attempt."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
