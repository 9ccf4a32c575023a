"""Facts about the command line that the end of the program needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from unloader.request.job_files import Entry, Given


class Invocation(Struct):
    """One call of the program, filled in while its command line is read."""

    debug: bool = False
    json: bool = False
    data_on_stdout: bool = False
    """Standard output is for rows; an error is reported on stderr alone."""
    job_file: str | None = None
    """The file that set options, a plan file included."""
    planned: bool = False
    """That file is a plan."""
    job_values: Mapping[str, Given] = field(default_factory=dict)
    """The settings of the job file, by the keys of options, each with its place."""

    routes: Sequence[Entry] = ()
    """The routes of a job file that has several."""

    def set_in(self, key: str) -> str:
        """Return the file that sets an option, and the line where that is known."""
        given = self.job_values.get(key)
        return str(self.job_file) if given is None else str(given.place)
