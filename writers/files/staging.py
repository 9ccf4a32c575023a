"""The staged files of one work unit: their names, their order, and the file being written."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from writers.errors import WriteError
from writers.files.publish import PART_SUFFIX
from writers.files.sink import Sink
from writers.model import StageSeconds, WrittenFile
from writers.objects.location import Location, is_location

if TYPE_CHECKING:
    from writers.model import (
        Compression,
        OutputSpec,
        UncompletedUpload,
    )


class StagedFiles:
    """Opens one file after the other, and records the written files.

    Names are `<stem>.<extension>.part`, or `<stem>.001.<extension>.part` and so on if the output
    has a file size. The first file is opened immediately, so that a unit without rows has a file.
    """

    def __init__(
        self, spec: OutputSpec, stem: str, extension: str, compression: Compression
    ) -> None:
        self._spec = spec
        self._stem = stem
        self._extension = extension
        self._compression = compression
        self._done: list[WrittenFile] = []
        self._done_stages = StageSeconds(uncompressed_bytes=0)
        self._sink: Sink | None = None
        self.sink()

    def sink(self) -> Sink:
        """Return the file being written; open the next one if necessary."""
        if self._sink is None:
            self._sink = Sink(
                Path(self._spec.stream) if self._spec.stream else self._place(len(self._done)),
                compression=self._compression,
                buffer_bytes=self._spec.buffer_bytes,
                buffers=self._spec.buffers,
                checksum=self._spec.checksum,
                direct_io=self._spec.direct_io,
                min_free_bytes=self._spec.min_free_bytes,
                recipients=self._spec.encryption.recipients,
                synced_from_bytes=self._spec.synced_from_bytes,
                stays_cached=self._spec.stays_cached,
                held=self._spec.finals is not None,
            )
        return self._sink

    @property
    def is_open(self) -> bool:
        return self._sink is not None

    def finish(self, rows: int) -> None:
        """Sync and close the file being written, which holds `rows` rows."""
        sink = self.sink()
        size, checksum = sink.close()
        name = sink.path.name if sink.upload is None else self._name(len(self._done))
        self._done.append(
            WrittenFile(path=name, rows=rows, bytes=size, checksum=checksum, upload=sink.upload)
        )
        self._done_stages = _sum(self._done_stages, sink.stages())
        self._sink = None

    @property
    def files(self) -> tuple[WrittenFile, ...]:
        return tuple(self._done)

    def abort(self) -> None:
        """Remove every file; never raises."""
        if self._sink is not None:
            self._sink.abort()
            self._sink = None
        # Bytes that went through a pipe cannot be removed, and the pipe is not ours.
        for number, file in enumerate(() if self._spec.stream else self._done):
            _remove(self._place(number), file.upload)
        self._done.clear()

    def _name(self, number: int) -> str:
        """Return the name of a file while it is staged, and in the records of its unit."""
        part = f".{number + 1:03d}" if self._spec.file_size_bytes else ""
        return f"{self._stem}{part}.{self._extension}{PART_SUFFIX}"

    def _place(self, number: int) -> Path | Location:
        finals, name = self._spec.finals, self._name(number)
        if finals is not None:
            return Location.parse(finals.place).below(finals.name(number))
        if is_location(self._spec.directory):
            return Location.parse(self._spec.directory).below(name)
        return Path(self._spec.directory, name)

    @property
    def bytes_written(self) -> int:
        writing = self._sink.bytes_written if self._sink is not None else 0
        return sum(file.bytes for file in self._done) + writing

    def stages(self, encode_seconds: float) -> StageSeconds:
        stages = self._done_stages
        if self._sink is not None:
            stages = _sum(stages, self._sink.stages())
        return replace(stages, encode_s=encode_seconds)


def _remove(file: Path | Location, upload: UncompletedUpload | None) -> None:
    """Remove a file, an object or an upload; the next run removes one that stays."""
    if isinstance(file, Path):
        with contextlib.suppress(OSError):
            file.unlink()
        return
    from writers.objects.upload import remove, remove_upload

    if upload is not None:
        remove_upload(file, upload.id)
        return
    with contextlib.suppress(WriteError):
        remove(file)


def _sum(some: StageSeconds, more: StageSeconds) -> StageSeconds:
    sums = {name: getattr(some, name) + getattr(more, name) for name in some.__struct_fields__}
    return StageSeconds(
        **{**sums, "longest_blocked_s": max(some.longest_blocked_s, more.longest_blocked_s)}
    )
