"""Starts a new interpreter, which serves this process over a socket."""

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

# Nothing is imported before the path is the parent's: with -c the current folder comes first.
_BOOTSTRAP = (
    "import sys; _, _, module, fd, parent, tied, entry, *sys.path = sys.argv; del sys.argv[1:]; "
    "from importlib import import_module; "
    "import_module(module).serve(int(fd), int(parent), tied == 'tied', entry)"
)


def start_interpreter(
    module: str, name: str, entry: str, theirs: socket.socket, stderr: int | IO[bytes]
) -> "subprocess.Popen[bytes]":
    """Start an interpreter with the `sys.path` of this process that calls a module's `serve`.

    It inherits one end of a socket and no other descriptor, so that its parent sees each end of a
    pipe immediately. It is not a `multiprocessing.Process`, which imports the caller's `__main__`
    again: that is slow and needs a guard in every script.

    Args:
        module: Its `serve` takes the descriptor of the socket, this process's id, whether the
            kernel may end it together with the calling thread, and the entry.
        name: Its name in the list of processes.
        entry: See `numa.pool.Pool`.
        theirs: The end of the socket that the interpreter gets; the caller closes its own copy.
        stderr: As `subprocess.Popen` takes it; the other standard streams lead to nothing.
    Raises:
        OSError: The system refuses the process.
    """
    # The kernel's death signal follows the thread that started a process: see `die_with_parent`.
    tied = threading.current_thread() is threading.main_thread()
    # The folder of this package is on the path, wherever the package was imported from.
    home = str(Path(__file__).resolve().parents[2])
    path = [*sys.path, *([] if home in sys.path else [home])]
    return subprocess.Popen(
        [
            *(sys.executable, "-c", _BOOTSTRAP, name, module, str(theirs.fileno())),
            *(str(os.getpid()), "tied" if tied else "loose", entry, *path),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        pass_fds=(theirs.fileno(),),
        # In its own session, so that signals of the terminal reach the parent alone.
        start_new_session=True,
    )
