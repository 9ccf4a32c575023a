"""Boots one virtual machine, lets it run a list of unloads, and brings back what came of each."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from processes.program import Program
from vm_initramfs import SHARE
from vm_rig import Rig

BOOT_SECONDS = 1500
"""After it QEMU is killed. Alone on two cores a guest needs 70 to 210 s. Beside other tests on a busy
machine it once took more than 570 s."""

_CHECKOUT = Path(__file__).resolve().parents[2]

# AVX, and moves by one instruction, are slow to emulate. Of AMD's CPUs Linux takes the emulated
# threads of a core for cores.
_CPU = "max,vendor=GenuineIntel,la57=off,avx=off,avx2=off,erms=off,fsrm=off"

# Without random addresses processes share the emulator's translations: half the time. The rest
# leaves out self-tests, waits and guards that are of no use in a guest.
_KERNEL_ARGUMENTS = (
    "console=ttyS0 quiet loglevel=3 panic=-1 norandmaps mitigations=off cryptomgr.notests "
    "tsc=reliable no_timer_check nowatchdog apparmor=0 audit=0 random.trust_cpu=on"
)

# Drivers look for these and do without. Loading them, emulated, would take most of a run.
_LEFT_OUT = ("numpy", "pandas", "polars")

# An editable installation finds the checkout by its own module, in each process that starts.
_START = """\
rm -f {packages}/*.pth
export PATH=/usr/local/bin:/usr/bin:/bin HOME=/root LANG=C.UTF-8
export PYTHONPATH={path}
exec {python} {agent} {share}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestNode:
    """One node in the terms of QEMU."""

    cpus: str | None
    """Such as `0-1`, or None."""
    mebibytes: int
    """Far more than a run takes: where a node is short of memory, pages go elsewhere. 0 = none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One virtual machine."""

    cpus: str
    """QEMU's -smp: how many, and how they make sockets, cores and threads."""
    nodes: tuple[GuestNode, ...]
    distances: tuple[tuple[int, int, int], ...] = ()
    """(from node, to node, distance) where it is not 20; both ways are alike."""
    kernel_arguments: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One run in a guest, and the changes to the machine for it."""

    name: str
    options: tuple[str, ...]
    """Of `unloader run`."""
    cgroup: dict[str, str] = field(default_factory=dict)
    """Files of the control group that the run is in, and the values written to them."""
    offline: tuple[int, ...] = ()
    """CPUs that are off while it runs."""
    unplugged: tuple[int, ...] = ()
    """CPUs that are switched off when its workers are at work."""
    at_work: int = 0
    """How many those are."""
    refused: bool = False
    """Whether set_mempolicy fails with EPERM, as in many containers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One process of a worker, as an observer in the guest saw it, by /proc alone."""

    worker: int
    allowed: tuple[str, ...]
    """Each `Cpus_allowed_list` that any of its threads had, in order of appearance."""
    ran_on: frozenset[int]
    """CPUs that its threads were on."""
    policies: frozenset[str]
    """Memory policies of its private memory, as numa_maps shows them."""
    own_bytes: dict[int, int]
    """Its own memory at the last look, by node: what no file is behind."""

    def local_share(self, node: int) -> float:
        """Return its own part memory that is on the node."""
        return self.own_bytes.get(node, 0) / sum(self.own_bytes.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """One run that is over."""

    status: int
    stderr: str
    seconds: float
    seen: tuple[Seen, ...]
    """Processes of its workers, by worker and then in order of their start."""
    unplugged: bool
    """Whether CPUs were switched off while it ran."""
    folder: Path
    """Its files, copied to the host."""

    @property
    def manifest(self) -> dict[str, Any]:
        """The run's own account."""
        found: dict[str, Any] = json.loads((self.folder / "_manifest.json").read_text())
        return found


Boot: TypeAlias = Callable[[Machine, Sequence[Scenario]], dict[str, Ended]]
"""`boot` with the rest filled in."""


def boot(
    rig: Rig, machine: Machine, scenarios: Sequence[Scenario], database: Path, share: Path
) -> dict[str, Ended]:
    """Boot, run the scenarios one after the other, switch off; return what came of them by name.

    Args:
        rig: Of `vm_rig.prepared`.
        machine: What to boot.
        scenarios: In this order.
        database: SQLite file with the table `events`.
        share: Empty folder; holds what guest and host tell each other.
    """
    _furnish(share, scenarios, database)
    said = _run(_command(rig, machine, share))
    results = share / "results.jsonl"
    lines = results.read_text().splitlines() if results.exists() else []
    found = {each.pop("name"): _ended(each, share) for each in map(json.loads, lines)}
    absent = [each.name for each in scenarios if each.name not in found]
    assert not absent, f"the guest came to no end of {absent}. Its console:\n{said}"
    return found


def _furnish(share: Path, scenarios: Sequence[Scenario], database: Path) -> None:
    shutil.copy(database, share / "events.db")
    (share / "scenarios.json").write_text(json.dumps([asdict(each) for each in scenarios]))
    (share / "left_out").mkdir()
    for name in _LEFT_OUT:
        text = f"raise ModuleNotFoundError('left out of the guest', name={name!r})\n"
        (share / "left_out" / f"{name}.py").write_text(text)
    path = (f"{SHARE}/left_out", str(_CHECKOUT), str(_CHECKOUT / "tests/numa"))
    start = _START.format(
        path=shlex.quote(":".join(path)),
        python=shlex.quote(sys.executable),
        packages=shlex.quote(sysconfig.get_path("purelib")),
        agent=shlex.quote(str(Path(__file__).with_name("guest") / "agent.py")),
        share=SHARE,
    )
    (share / "start").write_text(start)


def _command(rig: Rig, machine: Machine, share: Path) -> list[str]:
    command = [rig.qemu, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]
    # Not KVM even if it exists: its quality inside a virtual machine differs too much.
    command += ["-machine", "pc", "-accel", "tcg,thread=multi", "-cpu", _CPU, "-smp", machine.cpus]
    command += ["-bios", "qboot.rom", "-serial", "stdio", "-kernel", str(rig.kernel)]
    command += ["-initrd", str(rig.initramfs)]
    command += ["-append", f"{_KERNEL_ARGUMENTS} {machine.kernel_arguments}".strip()]
    command += ["-m", f"{sum(node.mebibytes for node in machine.nodes)}M"]
    for number, node in enumerate(machine.nodes):
        text = f"node,nodeid={number}"
        if node.cpus is not None:
            text += f",cpus={node.cpus}"
        if node.mebibytes:
            memory = f"memory-backend-ram,id=memory{number},size={node.mebibytes}M"
            command += ["-object", memory]
            text += f",memdev=memory{number}"
        command += ["-numa", text]
    for first, second, distance in machine.distances:
        command += ["-numa", f"dist,src={first},dst={second},val={distance}"]
    for tag, options in (
        ("host", "path=/,readonly=on,multidevs=remap"),
        ("share", f"path={str(share).replace(',', ',,')}"),
    ):
        command += ["-fsdev", f"local,id={tag},security_model=none,{options}"]
        command += ["-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]
    return command


def _run(command: list[str]) -> str:
    """Run QEMU to its end, at most for its time; return the output of the guest's console."""
    # The kernel ends it when we are killed, and no one else could.
    tied = ["setpriv", "--pdeathsig", "KILL", *command]
    with Program(
        tied, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        try:
            out, _ = process.communicate(timeout=BOOT_SECONDS)
            end = f"QEMU ended with status {process.returncode}"
        except subprocess.TimeoutExpired:
            process.kill()
            out, _ = process.communicate()
            end = f"QEMU was killed after {BOOT_SECONDS} s"
        except BaseException:
            process.kill()
            process.wait()
            raise
    return f"{out.decode(errors='replace')}{end}"


def _ended(told: dict[str, Any], share: Path) -> Ended:
    seen = [
        Seen(
            worker=each["worker"],
            allowed=tuple(each["allowed"]),
            ran_on=frozenset(each["ran_on"]),
            policies=frozenset(each["policies"]),
            own_bytes={int(node): size for node, size in each["own_bytes"].items()},
        )
        for each in told["seen"]
    ]
    return Ended(
        status=told["status"],
        stderr=told["stderr"],
        seconds=told["seconds"],
        seen=tuple(seen),
        unplugged=told["unplugged"],
        folder=share / told["folder"],
    )
