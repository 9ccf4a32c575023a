"""The output of a run to standard output or a named pipe."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from partition_planner.model import WorkUnit
from unloader.errors import UsageError
from unloader.events import Event, Notice, Observer
from unloader.manifest.model import Manifest
from unloader.model import FinishedUnit, OutputTask
from unloader.resolve.places import name_values, names_of
from unloader.resolve.resolved import ResolvedTable
from unloader.run.outputs import MakeManifest, RunOutput, Stop
from unloader.storage.place_names import pipe_template
from unloader.storage.stream_relay import Stream
from writers.files.syncing import Steps
from writers.model import ParquetFormat


class StreamOutput(RunOutput):
    """One stream for all work units: standard output, or one named pipe.

    The units go one after the other, in table order, through one worker, so that what arrives is
    what `--file-per table` would write. Nothing can be staged or taken back: an attempt is repeated
    only if no byte of it was sent. Only the exit status reports later errors.
    """

    in_order = True

    def __init__(self, run: ResolvedTable, *, pipe: bool) -> None:
        """Take the stream; raise UsageError if the plan has several units of Parquet."""
        super().__init__(run)
        plan = run.plan
        if isinstance(run.output.format, ParquetFormat) and len(plan.units) > 1:
            raise UsageError(
                f"the plan has {len(plan.units)} work units, but one stream can contain only one "
                "Parquet file",
                "use --split none",
            )
        self._first_unit = min(unit.id for unit in plan.units)
        self._finished_bytes = 0
        self.name = "standard output"
        if pipe:
            folder, template = pipe_template(self.destination)
            self.name = str(folder / names_of(template, name_values(run), None)(0))
        self._stream = Stream(self.name, is_pipe=pipe)

    def begin(self, observe: Observer, stop: Stop) -> None:
        self._stream.open(
            open_seconds=self.run.output.options.pipe_seconds,
            stall_seconds=self.run.request.retry.stall_seconds,
            stop=stop,
            notify=lambda text: observe(Notice(text=text)),
        )

    def task(self, unit: WorkUnit, attempt: int) -> OutputTask:
        spec = replace(self.run.output.spec(""), stream=self._stream.path)
        return self._task("stream", spec, writes_header=unit.id == self._first_unit)

    def check(self) -> None:
        self._stream.check()

    def shown(self, message: str) -> str:
        return message.replace(self._stream.path, self.name)

    def not_repeatable(self) -> str:
        if self._stream.taken <= self._finished_bytes:
            return ""
        return (
            f"the attempt cannot be retried, because bytes of it were already sent to {self.name}"
        )

    def record(self, unit: FinishedUnit) -> Event | None:
        self._finished_bytes += sum(file.bytes for file in unit.files)
        return None

    def publishing(
        self,
        units: Sequence[FinishedUnit],
        manifest: MakeManifest,
        stop: Stop,
        then: Callable[[Manifest], None],
    ) -> Steps[Manifest]:
        self._stream.finish()
        return (yield from super().publishing(units, manifest, stop, then))

    def abandon(self, manifest: Callable[[], Manifest] | None) -> None:
        self._stream.break_off()

    def already_delivered(self) -> str:
        sent = self._stream.passed
        return f"the {sent:,} bytes sent to {self.name} are not valid output" if sent else ""

    def close(self) -> None:
        self._stream.close()
