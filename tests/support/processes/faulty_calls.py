"""A library that makes system calls on chosen files fail, loaded into real processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from processes import preloaded

SOURCE = Path(__file__).with_suffix(".c")


@dataclass(frozen=True, kw_only=True)
class FaultyCalls:
    """The compiled library."""

    path: Path

    @classmethod
    def build(cls, directory: Path) -> FaultyCalls:
        """Compile it into a directory; skip the test where there is no C compiler."""
        return cls(path=preloaded.build(SOURCE, directory))

    def environment(
        self,
        call: str,
        what: str | int,
        *,
        files: str = "/_run/staged/",
        after: int = 0,
        more: Mapping[str, object] | None = None,
    ) -> dict[str, str]:
        """Return the variables under which a process meets the fault.

        Args:
            call: write, fsync, sync_file_range, create, rename, mkdir, unlink, statvfs or direct;
                any of the first seven.
            what: An errno, or short, zero, slow, interrupted, refused, killed, noted, or while: and
                a file. Of create: hold: and a file. Of statvfs: a file that holds the number of bytes that
                are free.
            files: Part of the path of the files that are meant: by default those with rows.
            after: Bytes (of write) or calls that go well first.
            more: `who`, `times` and `log`; see `faulty_calls.c`.
        """
        return {
            "LD_PRELOAD": str(self.path),
            "FAULT_PATH": files,
            "FAULT_CALL": call,
            "FAULT_DO": str(what),
            "FAULT_AFTER": str(after),
            **{f"FAULT_{name.upper()}": str(value) for name, value in (more or {}).items()},
        }
