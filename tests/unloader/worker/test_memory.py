"""How a worker's process manages the memory of the C library."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

_TWICE = """
import ctypes, resource
from unloader.worker.memory import tune

tune()
library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
library.malloc.argtypes = (ctypes.c_size_t,)
library.memset.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
library.free.argtypes = (ctypes.c_void_p,)

def batch():
    places = [library.malloc(64 * 1024) for _ in range(64)]
    for place in places:
        library.memset(place, 1, 64 * 1024)
    for place in places:
        library.free(place)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

before = batch()
print(batch() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the settings are those of glibc")
def test_a_batch_comes_in_the_memory_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """4 MiB that were given back are not requested from the kernel again, page by page."""
    monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_", raising=False)
    done = subprocess.run(
        [sys.executable, "-c", _TWICE], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 4 * 2**20 // 4096 // 4


@pytest.mark.parametrize("entry", ["unloader.worker.process", "unloader.tuning.measuring_process"])
def test_memory_is_tuned_before_arrow_is_imported(entry: str) -> None:
    """Arrow chooses its allocator when it is imported."""
    script = (
        "import importlib, sys\n"
        "from unloader.worker import memory\n"
        "memory.tune = lambda: print('pyarrow' in sys.modules)\n"
        f"importlib.import_module({entry!r})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
