"""An Airflow operator that runs a job file of unloader: put it into the folder of the DAGs.

A retry of the task resumes the interrupted run. The totals of the manifest are the XCom of the
task, and each line of the run's log is a line of the task's log. It is for Airflow 3.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Sequence
from typing import IO, Any

from airflow.exceptions import AirflowException, AirflowFailException
from airflow.sdk import BaseHook, BaseOperator, Context

FOR_GOOD = (2, 3, 5, 8, 10)
"""Wrong options or configuration, a plan that does not fit, a difference, a failed hook."""


class UnloadOperator(BaseOperator):
    """Runs `unloader run JOB`.

    Args:
        job: Path of the job file; a template.
        conn_id: A connection whose password the run uses. The job file has the other parts.
        options: Further options, such as ("--parallelism", "8"); templates.
        program: The command, if it is not on the PATH of the worker.
    """

    template_fields: Sequence[str] = ("job", "options")

    def __init__(
        self,
        *,
        job: str,
        conn_id: str | None = None,
        options: Sequence[str] = (),
        program: str = "unloader",
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.job, self.conn_id, self.options, self.program = job, conn_id, options, program
        self._process: subprocess.Popen[str] | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        """Run the job to its end; return the directory, the run's id and the totals."""
        environment = dict(os.environ)
        if self.conn_id is not None:
            environment["UNLOADER_PASSWORD"] = BaseHook.get_connection(self.conn_id).password or ""
        command = [self.program, "run", self.job, *self.options]
        self._process = subprocess.Popen(
            [*command, "--resume-or-start", "--json", "--progress", "log"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        logging = threading.Thread(target=self._log, args=(self._process.stderr,))
        logging.start()
        text = self._process.stdout.read()
        status = self._process.wait()
        logging.join()
        answer = json.loads(text or "{}")
        if status == 0:
            to = answer["options"]["to"]
            return {"directory": to, "run_id": answer["run_id"], **answer["totals"]}
        error = answer.get("error", {})
        message = f"status {status}: {error.get('message')}. Next: {error.get('hint')}"
        raise (AirflowFailException if status in FOR_GOOD else AirflowException)(message)

    def _log(self, lines: IO[str]) -> None:
        for line in lines:
            self.log.info("%s", line.rstrip())

    def on_kill(self) -> None:
        """Stop the run in good order: finished work units are kept for the next attempt."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(timeout=60)
