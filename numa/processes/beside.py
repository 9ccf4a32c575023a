"""Starts a process beside this one that serves it over a socket."""

import socket
import subprocess
import sys

from numa.processes.paths import import_path

# Nothing is imported before the path is the parent's: with -c the current folder comes first.
_BOOTSTRAP = (
    "import sys; module, fd, *sys.path = sys.argv[1:]; del sys.argv[1:]; "
    "from importlib import import_module; import_module(module).serve(int(fd))"
)


def start_beside(module: str, theirs: socket.socket) -> "subprocess.Popen[bytes]":
    """Start an interpreter with our `sys.path` that calls a module's `serve`; return it.

    It has no standard streams, and is in a session of its own: signals of the terminal are for us.

    Args:
        module: Its `serve` takes the number of the descriptor.
        theirs: The end of the socket that becomes the process's; ours is to be closed here.
    Raises:
        OSError: The system refuses it.
    """
    return subprocess.Popen(
        (sys.executable, "-c", _BOOTSTRAP, module, str(theirs.fileno()), *import_path()),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(theirs.fileno(),),
        start_new_session=True,
    )
