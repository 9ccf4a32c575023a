"""Which node a network interface or a disk is attached to, in the shapes sysfs gives them."""

import os
from pathlib import Path

import pytest

from numa.devices import node_of_device
from numa.model import DeviceNode, TopologyError


class Devices:
    """A folder each for sysfs, device files and procfs."""

    def __init__(self, root: Path) -> None:
        self.sys = root / "sys"
        self.dev = root / "dev"
        self.proc = root / "proc"
        for folder in ("class/net", "class/block", "dev/block"):
            (self.sys / folder).mkdir(parents=True)
        self.dev.mkdir()

    def bus(self, path: str, node: int | None) -> None:
        """Make a device of a bus, with the node the kernel names for it."""
        folder = self.sys / "devices" / path
        folder.mkdir(parents=True, exist_ok=True)
        if node is not None:
            (folder / "numa_node").write_text(f"{node}\n")

    def network(self, path: str, *lower: str) -> None:
        """Make an interface, on top of others or not."""
        folder = self._device("net", path)
        for name in lower:
            os.symlink(self.sys / "class/net" / name, folder / f"lower_{name}")

    def block(self, path: str, *slaves: str, number: str = "", partition: bool = False) -> None:
        """Make a block device, of others or not."""
        folder = self._device("block", path)
        if partition:
            (folder / "partition").write_text("1\n")
        else:
            (folder / "slaves").mkdir()
        for name in slaves:
            os.symlink(self.sys / "class/block" / name, folder / "slaves" / name)
        if number:
            os.symlink(folder, self.sys / "dev/block" / number)

    def ask(self, name: str) -> DeviceNode:
        """Ask for the device's node."""
        return node_of_device(name, sys_root=self.sys, dev_root=self.dev, proc_root=self.proc)

    def _device(self, kind: str, path: str) -> Path:
        folder = self.sys / "devices" / path
        folder.mkdir(parents=True)
        os.symlink(folder, self.sys / "class" / kind / folder.name)
        return folder


@pytest.fixture
def devices(tmp_path: Path) -> Devices:
    """Two network cards and three disks, on nodes 0 and 1, as a server of two sockets has them."""
    made = Devices(tmp_path)
    made.bus("pci0000:00/0000:00:1f.2", 0)
    made.bus("pci0000:00/0000:01:00.0", 0)
    made.bus("pci0000:80/0000:81:00.0", 1)
    made.bus("pci0000:80/0000:82:00.0", 1)
    made.bus("pci0000:80/0000:83:00.0", -1)
    made.network("pci0000:00/0000:01:00.0/net/eth0")
    made.network("pci0000:80/0000:81:00.0/net/eth1")
    made.network("pci0000:80/0000:83:00.0/virtio5/net/eth2")
    made.block("pci0000:00/0000:00:1f.2/ata1/host0/target0:0:0/0:0:0:0/block/sda")
    made.block(
        "pci0000:00/0000:00:1f.2/ata1/host0/target0:0:0/0:0:0:0/block/sda/sda1", partition=True
    )
    made.block("pci0000:80/0000:82:00.0/nvme/nvme0/nvme0n1")
    made.block("pci0000:80/0000:82:00.0/nvme/nvme0/nvme0n1/nvme0n1p1", partition=True)
    return made


def node(name: str, kind: str, number: int) -> DeviceNode:
    """Return a device whose node is known."""
    return DeviceNode(name=name, kind=kind, node=number, note=None)


@pytest.mark.parametrize(
    ("name", "kind", "number"),
    [
        ("eth0", "network", 0),
        ("eth1", "network", 1),
        ("sda", "block", 0),
        ("sda1", "block", 0),
        ("nvme0n1", "block", 1),
        ("nvme0n1p1", "block", 1),
    ],
)
def test_device_has_the_node_of_its_controller(
    devices: Devices, name: str, kind: str, number: int
) -> None:
    """The first device above with a node gives it, to partitions as to disks."""
    assert devices.ask(name) == node(name, kind, number)


def test_device_file_and_links_to_it(devices: Devices) -> None:
    """A path below /dev is the device of its name; where the file is missing sysfs will do."""
    (devices.dev / "nvme0n1").write_text("")
    (devices.dev / "disk").mkdir()
    os.symlink("../nvme0n1", devices.dev / "disk" / "by-id")
    for name in ("nvme0n1", "disk/by-id"):
        assert devices.ask(f"/dev/{name}") == node("nvme0n1", "block", 1)
    assert devices.ask("/dev/sda1") == node("sda1", "block", 0)


def test_minus_one_is_no_node(devices: Devices) -> None:
    """If the kernel reports -1, as on most virtual machines, the node is unknown, with a note."""
    found = devices.ask("eth2")
    assert (found.node, found.note) == (None, "the kernel names no node for eth2")


def test_minus_one_is_looked_past(devices: Devices) -> None:
    """A device with -1 below one with a node has that one's."""
    devices.bus("pci0000:80/0000:81:00.0/virtio9", -1)
    devices.network("pci0000:80/0000:81:00.0/virtio9/net/eth9")
    assert devices.ask("eth9") == node("eth9", "network", 1)


def test_virtual_device_has_no_node(devices: Devices) -> None:
    """Loopback and the like are on no node."""
    devices.network("virtual/net/lo")
    devices.block("virtual/block/loop0")
    for name in ("lo", "loop0"):
        found = devices.ask(name)
        assert (found.node, found.note) == (None, f"{name} has no node: it is a virtual device")


@pytest.mark.parametrize(
    ("lower", "number"), [(("eth1",), 1), (("eth1", "eth3"), 1), (("bond0",), 1), (("eth0",), 0)]
)
def test_interface_on_top_of_others(devices: Devices, lower: tuple[str, ...], number: int) -> None:
    """A bond, bridge or VLAN has the node of its lowest devices."""
    devices.network("pci0000:80/0000:81:00.1/net/eth3")
    devices.bus("pci0000:80/0000:81:00.1", 1)
    devices.network("virtual/net/bond0", "eth1", "eth3")
    devices.network("virtual/net/top", *lower)
    assert devices.ask("top") == node("top", "network", number)


def test_interface_over_two_nodes_has_none(devices: Devices) -> None:
    """Parts on different nodes, or of unknown ones, leave no node; the note has them all."""
    devices.network("virtual/net/bond0", "eth0", "eth1")
    found = devices.ask("bond0")
    assert found.node is None
    assert (
        found.note
        == "bond0 does not have exactly one node: it is made of eth0 (node 0), eth1 (node 1)"
    )
    devices.network("virtual/net/bond1", "eth0", "eth2")
    assert devices.ask("bond1").note == (
        "bond1 does not have exactly one node: it is made of eth0 (node 0), eth2 (node unknown)"
    )


def test_mapped_and_striped_disks(devices: Devices) -> None:
    """LVM on RAID on partitions ends at the disks, and so does a partition of the RAID."""
    devices.block("pci0000:80/0000:82:00.0/nvme/nvme1/nvme1n1")
    devices.block("virtual/block/md0", "nvme0n1p1", "nvme1n1")
    devices.block("virtual/block/md0/md0p1", partition=True)
    devices.block("virtual/block/dm-0", "md0p1")
    devices.block("virtual/block/dm-1", "md0", "sda")
    for name in ("md0", "md0p1", "dm-0"):
        assert devices.ask(name) == node(name, "block", 1)
    assert devices.ask("dm-1").node is None


def test_disk_with_several_ways_to_it(devices: Devices) -> None:
    """An NVMe disk under multipath is below its subsystem; its controllers have the node."""
    devices.block("virtual/nvme-subsystem/nvme-subsys0/nvme7n1")
    devices.block("virtual/nvme-subsystem/nvme-subsys0/nvme7n1/nvme7n1p2", partition=True)
    devices.bus("pci0000:80/0000:82:00.0/nvme/nvme7", None)
    subsystem = devices.sys / "devices/virtual/nvme-subsystem/nvme-subsys0"
    os.symlink(devices.sys / "devices/pci0000:80/0000:82:00.0/nvme/nvme7", subsystem / "nvme7")
    for name in ("nvme7n1", "nvme7n1p2"):
        assert devices.ask(name) == node(name, "block", 1)


def test_devices_made_of_each_other_end(devices: Devices) -> None:
    """Links that go in a circle do not hang the search."""
    devices.network("virtual/net/a0", "b0")
    devices.network("virtual/net/b0", "a0")
    assert devices.ask("a0").node is None


def test_folder_stands_for_its_disk(devices: Devices, tmp_path: Path) -> None:
    """A file or folder is found by the device number of its file system."""
    number = os.stat(tmp_path).st_dev
    devices.block(
        "pci0000:80/0000:82:00.0/nvme/nvme3/nvme3n1",
        number=f"{os.major(number)}:{os.minor(number)}",
    )
    (tmp_path / "table.csv").write_text("")
    for path in (tmp_path, tmp_path / "table.csv"):
        assert devices.ask(str(path)) == node("nvme3n1", "block", 1)


def test_file_system_that_hides_its_device(devices: Devices, tmp_path: Path) -> None:
    """Where the number leads nowhere (btrfs) the mount table names the device."""
    (devices.proc / "self").mkdir(parents=True)
    place = str(tmp_path).replace(" ", "\\040")
    table = [
        "1 0 0:1 / / rw - overlay overlay rw",
        f"2 1 0:30 /@ {tmp_path.parent} rw - btrfs /dev/sda1 rw",
        f"3 1 0:31 /@home {place} rw shared:1 - btrfs /dev/nvme0n1p1 rw,subvol=/@home",
        "garbage",
    ]
    (devices.proc / "self/mountinfo").write_text("\n".join(table) + "\n")
    assert devices.ask(str(tmp_path)) == node("nvme0n1p1", "block", 1)
    assert devices.ask(str(tmp_path.parent)) == node("sda1", "block", 0)
    found = devices.ask("/")
    assert (found.node, found.name) == (None, "/")
    assert found.note == "/ is on no disk of this machine (memory, network or layered file system)"


@pytest.mark.parametrize(
    "name",
    ["eth7", "", "../absent", "/dev/absent", "/no/such/file", "/dev/null", "x" * 5000, "a\0b"],
)
def test_what_is_not_there_is_refused_with_what_is(devices: Devices, name: str) -> None:
    """A name of neither a device nor a file is refused with a list of interfaces and disks."""
    if name == "/dev/null":
        os.symlink("/dev/null", devices.dev / "null")
    with pytest.raises(TopologyError, match="Next: name one of these") as caught:
        devices.ask(name)
    assert "network interfaces: eth0, eth1, eth2; disks: nvme0n1, nvme0n1p1, sda, sda1." in str(
        caught.value
    )


def test_devices_of_this_machine_can_be_asked_for(tmp_path: Path) -> None:
    """Each interface and disk of the machine the tests run on has a node or a note."""
    for folder in ("net", "block"):
        path = Path("/sys/class") / folder
        for name in os.listdir(path) if path.is_dir() else ():
            found = node_of_device(name)
            assert (found.node is None) == (found.note is not None)
    assert node_of_device(str(tmp_path)).kind == "block"
