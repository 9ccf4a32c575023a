"""A program in which set_mempolicy fails with EPERM; prints what a worker of the pool gets then."""

import ctypes
import errno
import json
import os
import struct

from numa.affinity import losses, probe_memory_policy
from numa.model import Finished, Ready
from numa.placement import place
from numa.pool import Pool
from numa.topology import detect

# linux/seccomp.h, linux/filter.h, linux/prctl.h
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2
_LOAD_WORD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000


def deny(call_number: int) -> None:
    """Make the system call fail with EPERM, here and in all children, for good."""
    steps = (
        (_LOAD_WORD, 0, 0, 0),
        (_JUMP_IF_EQUAL, 0, 1, call_number),
        (_RETURN, 0, 0, _FAIL | errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
    )
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("HP", len(steps), ctypes.addressof(code)))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    word = ctypes.c_ulong
    for arguments in (
        (_PR_SET_NO_NEW_PRIVS, word(1), word(0), word(0), word(0)),
        (_PR_SET_SECCOMP, word(_SECCOMP_MODE_FILTER), program, word(0), word(0)),
    ):
        if prctl(*arguments) != 0:
            raise OSError(ctypes.get_errno(), "the filter cannot be set")


def main() -> None:
    """Start one worker and print its binding as JSON."""
    deny({"x86_64": 238}.get(os.uname().machine, 237))
    topology = detect()
    with Pool(place(topology, 1, bind="core"), "pool_tasks:do") as pool:
        pool.start(0)
        pool.assign(0, ("where", None))
        seen: dict[str, object] = {
            "probe": probe_memory_policy(),
            "losses": losses(topology, "bind"),
        }
        while "affinity" not in seen:
            for event in pool.wait(180.0):
                if isinstance(event, Ready):
                    bound = event.bound
                    seen |= {"cpus": bound.cpus, "policy": bound.memory_policy, "note": bound.note}
                elif isinstance(event, Finished) and isinstance(event.result, dict):
                    seen["affinity"] = event.result["affinity"]
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
