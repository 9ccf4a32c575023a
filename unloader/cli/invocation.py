"""What the end of the program must know of the command line it was started with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Invocation:
    """One call of the program, filled in while its command line is read."""

    debug: bool = False
    json: bool = False
    data_on_stdout: bool = False
    """Standard output is for rows; an error is reported on stderr alone."""
    job_file: str | None = None
    """The file that set options, a plan file included."""
    planned: bool = False
    """That file is a plan."""
