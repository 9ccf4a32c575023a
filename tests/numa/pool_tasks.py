"""Task functions for the pool's tests: importable by the child, as the pool requires."""

import importlib
import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from numa.processes import member

Report = Callable[[object], None]

KEPT: list[bytes] = []


class Hostile(Exception):
    """Cannot be made again from its arguments, and its text is broken."""

    def __init__(self, *, needed: int) -> None:
        super().__init__(needed)

    def __str__(self) -> str:
        raise RuntimeError("no text")


class Unreadable:
    """Pickles, and fails when read back."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return int, ("not a number",)


def do(task: tuple[str, object], report: Report) -> object:
    """Do the task by its name, with its argument."""
    name, argument = task
    return globals()[f"_{name}"](argument, report)


def _double(argument: int, report: Report) -> int:
    return argument * 2


def _echo(argument: object, report: Report) -> object:
    return argument


def _count(argument: int, report: Report) -> str:
    for number in range(argument):
        report(number)
    return "done"


def _count_in_threads(argument: int, report: Report) -> None:
    threads = [
        threading.Thread(target=report, args=((number, "x" * 100_000),))
        for number in range(argument)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _where(argument: object, report: Report) -> dict[str, object]:
    status = Path("/proc/self/status")
    return {
        "pid": os.getpid(),
        "affinity": sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "session": os.getsid(0),
        "sockets": [
            target
            for target in (_target(link) for link in Path("/proc/self/fd").iterdir())
            if target.startswith("socket:")
        ]
        if status.exists()
        else [],
    }


def _state(argument: object, report: Report) -> dict[str, object]:
    """What a process may have from the one that started it."""
    links = (Path(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd"))
    targets = {link.name: _target(link) for link in links}
    return {
        "cmdline": Path("/proc/self/cmdline").read_text().split("\0"),
        "session": os.getsid(0) == os.getpgrp() == os.getpid(),
        "blocked": list(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "handled": [
            number for number in signal.valid_signals() if callable(signal.getsignal(number))
        ],
        "ignored": signal.getsignal(signal.SIGUSR2) is signal.SIG_IGN,
        "leading somewhere": [
            target
            for number, target in targets.items()
            if target not in ("", os.devnull) and int(number) > 2
        ],
        "handlers": len(logging.root.handlers),
        "loaded": "colorsys" in sys.modules,
    }


def _target(link: Path) -> str:
    try:
        return os.readlink(link)
    except OSError:
        return ""


def _raise(argument: str, report: Report) -> None:
    raise LookupError(argument)


def _hostile(argument: object, report: Report) -> None:
    raise Hostile(needed=1)


def _leave(argument: object, report: Report) -> None:
    sys.exit("leaving")


def _lambda(argument: object, report: Report) -> object:
    return lambda: None


def _report_lambda(argument: object, report: Report) -> None:
    report(lambda: None)


def _unreadable(argument: object, report: Report) -> object:
    return Unreadable()


def _report_unreadable(argument: object, report: Report) -> None:
    report(Unreadable())
    time.sleep(60)


def _sleep(argument: float, report: Report) -> None:
    report("asleep")
    time.sleep(argument)


def _count_and_exit(argument: int, report: Report) -> None:
    _count(argument, report)
    os.write(2, b"last words\n")
    os._exit(3)


def _load(argument: str, report: Report) -> None:
    importlib.import_module(argument)


def _crash_as_server(argument: object, report: Report) -> None:
    if any(word.startswith("fork-server") for word in sys.orig_argv):
        os.kill(os.getpid(), signal.SIGSEGV)


def _start_a_thread(argument: object, report: Report) -> None:
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()


def _crash(argument: object, report: Report) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def _die_in_mid_message(argument: int, report: Report) -> None:
    report("whole")
    whole = pickle.dumps("x" * argument)
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, len(whole).to_bytes(8, "big") + whole[:10])
        except OSError:
            continue
    os._exit(4)


def _die_and_leave_a_grandchild(argument: float, report: Report) -> None:
    # fork, not subprocess: the grandchild then holds our end of the pipe open.
    pid = os.fork()
    if pid == 0:
        time.sleep(argument)
        os._exit(0)
    report(pid)
    os._exit(5)


def _ignore_sigterm(argument: float, report: Report) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _sleep(argument, report)


def _print(argument: str, report: Report) -> None:
    print(argument, flush=True)
    subprocess.run(["echo", argument], check=True)


def _shout(argument: int, report: Report) -> None:
    os.write(2, b"e" * argument)


def _leak(argument: int, report: Report) -> int:
    KEPT.append(b"x" * argument)
    return os.getpid()


def _swell(argument: int, report: Report) -> None:
    KEPT.append(b"x" * argument)
    time.sleep(600)


def _chatter(argument: float, report: Report) -> str:
    end = time.monotonic() + argument
    while time.monotonic() < end:
        report("still here")
        time.sleep(0.02)
    return "said it all"


def _start_a_helper(argument: float, report: Report) -> None:
    # Not ours to wait for: it is to be found and ended with the process.
    helper = subprocess.Popen(["sleep", "600"])
    report(helper.pid)
    time.sleep(argument)
    os.kill(os.getpid(), signal.SIGSEGV)


def _start_a_helper_and_return(argument: object, report: Report) -> int:
    helper = subprocess.Popen(["sleep", "600"])
    # It is not polled again, and Python would warn about that.
    helper.returncode = 0
    return helper.pid


def _wait_until_told(argument: object, report: Report) -> list[object]:
    heard: list[object] = []
    done = threading.Event()

    def listen(payload: object) -> None:
        heard.append(payload)
        if payload == argument:
            done.set()

    member.listen(listen)
    report("listening")
    assert done.wait(60)
    return heard
