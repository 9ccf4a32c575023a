"""The machine drawn, and the seats on it: `unloader topology`, and `plan`, which shares its table.

All machines but the one of the tests about this machine are folders of files made for the test.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from long_tests import OTHER_ROUTES
from machines.sysfs_trees import NodeSpec, TreeSpec, even, recordings, shapes, sized, write_tree

Run = Callable[..., "subprocess.CompletedProcess[str]"]
Machine = Callable[[TreeSpec], str]

NODE_KEYS = {
    *("id", "cpus", "memory_bytes", "memory_allowed", "distances", "cores", "speeds", "package"),
    "cpus_denied",
}
SURVEY_KEYS = {
    *("nodes", "seats", "parallelism", "placement", "bind", "memory_policy", "cpu_quota"),
    *("usable_cpus", "offline_cpus", "note", "notices", "near", "recorded_at"),
}


def answered(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Return the JSON object of a command that went well."""
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def shown(done: subprocess.CompletedProcess[str]) -> str:
    """Return the drawing of a command that went well."""
    assert done.returncode == 0, done.stderr
    return done.stdout


def lines_of(text: str, first_word: str) -> list[list[str]]:
    """Return the words of the lines below the head that begins with that word."""
    block = next(part for part in text.split("\n\n") if part.split()[0] == first_word)
    return [line.split() for line in block.splitlines()[1:]]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Write a machine's files and return their folder."""

    def write(spec: TreeSpec) -> str:
        return str(write_tree(spec, tmp_path / "db01"))

    return write


def test_json_has_nodes_and_seats(unloader: Run, machine: Machine) -> None:
    """Nodes with their CPUs and bytes, and one seat a worker with the CPUs of its node."""
    tree = machine(even(2, 4, threads=2))
    found = answered(unloader("topology", "--sysfs", tree, "--parallelism", "3", "--json"))
    assert found.keys() == SURVEY_KEYS
    assert all(node.keys() == NODE_KEYS for node in found["nodes"])
    cpus = {node["id"]: node["cpus"] for node in found["nodes"]}
    assert cpus == {0: [0, 1, 2, 3, 8, 9, 10, 11], 1: [4, 5, 6, 7, 12, 13, 14, 15]}
    assert [node["memory_bytes"] for node in found["nodes"]] == [2**30, 2**30]
    assert [node["distances"] for node in found["nodes"]] == [[10, 21], [21, 10]]
    assert found["nodes"][0]["cores"] == [[0, 8], [1, 9], [2, 10], [3, 11]]
    assert [(seat["worker"], seat["node"]) for seat in found["seats"]] == [(0, 0), (1, 1), (2, 0)]
    assert all(seat["cpus"] == cpus[seat["node"]] for seat in found["seats"])
    assert all(seat["memory_node"] == seat["node"] for seat in found["seats"])
    assert (found["parallelism"], found["usable_cpus"]) == (3, 16)
    assert (found["placement"], found["bind"]) == ("spread", "node")
    assert (found["memory_policy"], found["cpu_quota"], found["near"]) == ("preferred", None, None)


def test_another_machine_owes_nothing_to_this_one(unloader: Run, machine: Machine) -> None:
    """CPUs that this machine has not got are seated on: no affinity, cpuset or quota counts."""
    tree = machine(even(4, 16, threads=2))
    found = answered(unloader("topology", "--sysfs", tree, "--json"))
    assert found["parallelism"] == len(found["seats"]) == 128
    assert Counter(seat["node"] for seat in found["seats"]) == dict.fromkeys(range(4), 32)
    assert found["notices"] == []
    assert found["recorded_at"] == tree


def test_allowed_cpus_are_all_that_is_used(unloader: Run, machine: Machine) -> None:
    """The other CPUs are reported as not ours, and get no worker."""
    tree = machine(even(2, 4, threads=2))
    options = ("topology", "--sysfs", tree, "--allowed-cpus", "0-5,9", "--parallelism", "20")
    found = answered(unloader(*options, "--json"))
    assert [node["cpus"] for node in found["nodes"]] == [[0, 1, 2, 3, 9], [4, 5]]
    assert [node["cpus_denied"] for node in found["nodes"]] == [[8, 10, 11], [6, 7, 12, 13, 14, 15]]
    assert {cpu for seat in found["seats"] for cpu in seat["cpus"]} == {0, 1, 2, 3, 4, 5, 9}
    text = shown(unloader(*options))
    assert "20, on 7 usable CPUs" in text
    assert "CPUs 8,10-11" in text


def test_seats_are_dealt_as_asked(unloader: Run, machine: Machine) -> None:
    """Placement, binding and nodes have the same meaning as in `run`."""
    tree = machine(even(4, 2))
    options = ("topology", "--sysfs", tree, "--parallelism", "4", "--json")
    close = answered(unloader(*options, "--placement", "close", "--bind", "core"))
    assert [seat["cpus"] for seat in close["seats"]] == [[0], [1], [2], [3]]
    two = answered(unloader(*options, "--numa-nodes", "1,3"))
    assert Counter(seat["node"] for seat in two["seats"]) == {1: 2, 3: 2}
    every = answered(unloader(*options, "--numa-nodes", "all"))
    assert Counter(seat["node"] for seat in every["seats"]) == dict.fromkeys(range(4), 1)
    off = answered(unloader(*options, "--numa", "off"))
    assert (off["bind"], off["memory_policy"]) == ("none", "local")
    assert all(seat["cpus"] == [] for seat in off["seats"])


@pytest.fixture(scope="module")
def thousand(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a machine of 1,024 nodes of two CPUs."""
    spec = replace(even(1024, 2), packages={}, cores=())
    return str(write_tree(spec, tmp_path_factory.mktemp("thousand")))


@pytest.mark.long(OTHER_ROUTES)
def test_real_machines_fit_eighty_columns(environment: dict[str, str]) -> None:
    """The drawing of every real machine has nodes and workers, and no line is too long."""
    script = (
        "import sys; from unloader.cli import main\n"
        "for tree in sys.argv[1:]:\n"
        "    assert main(['topology', '--sysfs', tree]) == 0\n"
        "    print('\\f', end='')\n"
    )
    trees = [str(tree) for tree in recordings().values()]
    done = subprocess.run(
        [sys.executable, "-c", script, *trees],
        env={**environment, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    drawings = shown(done).rstrip("\f").split("\f")
    for tree, text in zip(trees, drawings, strict=True):
        assert text.startswith(f"machine  {tree}\n")
        assert max(map(len, text.splitlines()[1:])) <= 80, text
        assert lines_of(text, "node")
        assert lines_of(text, "worker")


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.parametrize(("columns", "bind"), [(80, "node"), (80, "core"), (120, "none")])
def test_a_thousand_nodes_are_a_few_lines(
    unloader: Run, thousand: str, columns: int, bind: str
) -> None:
    """Nodes that are alike share a line, in every width, with more workers than CPUs, too."""
    tree = thousand
    options = ("topology", "--sysfs", tree, "--parallelism", "5000", "--bind", bind)
    text = shown(unloader(*options, variables={"COLUMNS": str(columns)}))
    lines = [line for line in text.splitlines() if tree not in line]
    assert max(map(len, lines)) <= columns
    assert len(lines) < 40
    assert "nodes    1,024\n" in text


@pytest.mark.long(OTHER_ROUTES)
def test_a_list_of_numbers_is_a_line(unloader: Run, thousand: str) -> None:
    """A thousand nodes have a million distances: as JSON they take a line for each node."""
    done = unloader("topology", "--sysfs", thousand, "--parallelism", "1", "--json")
    assert [len(node["distances"]) for node in answered(done)["nodes"]] == [1024] * 1024
    assert len(done.stdout.splitlines()) < 20 * 1024
    assert '      "cpus": [6, 7],\n' in done.stdout


def test_the_drawing_tells_what_a_node_lacks(unloader: Run, machine: Machine) -> None:
    """A node without CPUs has no worker; one without memory is lent the nearest one's."""
    tree = machine(sized(4, 4, 0, memory_kb=(1 << 20, 0, 1 << 21)))
    text = shown(unloader("topology", "--sysfs", tree))
    nodes = {words[0]: words for words in lines_of(text, "node")}
    assert nodes["0"][-4:] == ["############", "4", "on", "4"]
    assert "none" in nodes["1"]
    assert nodes["2"][-3:] == ["has", "no", "CPUs"]
    seats = {words[1]: " ".join(words[3:]) for words in lines_of(text, "worker")}
    assert seats == {"0": "node 0, 1.1 GB", "1": "node 0, 1.1 GB"}


def test_a_policy_that_names_no_node_shows_none(unloader: Run, machine: Machine) -> None:
    """Interleaved memory comes from all nodes, and local memory from wherever a worker runs."""
    options = ("topology", "--sysfs", machine(even(2, 2)), "--memory-policy")
    assert "0-1   all nodes with CPUs, by turns" in shown(unloader(*options, "interleave"))
    assert "0-1   where it runs" in shown(unloader(*options, "local"))


def test_numbers_in_turns_are_written_short(unloader: Run, machine: Machine) -> None:
    """If CPUs alternate between nodes, they are shown as a stride."""
    nodes = tuple(
        NodeSpec(id=node, cpus=tuple(range(node, 64, 2)), distances=(10, 21)[:: 1 - 2 * node])
        for node in (0, 1)
    )
    text = shown(unloader("topology", "--sysfs", machine(TreeSpec(nodes=nodes))))
    assert {words[1] for words in lines_of(text, "node")} == {"0-62:2", "1-63:2"}


def test_distances_are_a_matrix_only_while_it_fits(unloader: Run, machine: Machine) -> None:
    """Sixteen nodes or fewer are shown pair by pair, more as the distances there are."""
    tree = machine(even(4, 1, nodes_per_package=2))
    few = shown(unloader("topology", "--sysfs", tree))
    assert "node 0           10    12    21    21" in few
    many = shown(unloader("topology", "--sysfs", str(recordings()["altix_64_nodes"])))
    assert [words[0] for words in lines_of(many, "distance")] == ["10", "22", "26", "30", "34"]


def test_a_recording_is_as_good_as_the_folder(
    unloader: Run, machine: Machine, tmp_path: Path
) -> None:
    """What --record writes of a machine, --sysfs reads back, with the same seats."""
    tree = machine(shapes()["offline CPUs"])
    first = answered(unloader("topology", "--sysfs", tree, "--record", "sent.txt", "--json"))
    again = answered(unloader("topology", "--sysfs", "sent.txt", "--json"))
    assert {**again, "recorded_at": tree} == first
    assert first["offline_cpus"] == [1, 9, 14]


def test_this_machine_is_drawn_as_we_may_use_it(unloader: Run) -> None:
    """It shows the CPUs of our affinity mask, and --allowed-cpus selects some of them."""
    ours = sorted(os.sched_getaffinity(0))
    found = answered(unloader("topology", "--json"))
    assert sorted(cpu for node in found["nodes"] for cpu in node["cpus"]) == ours
    assert found["parallelism"] == found["usable_cpus"] <= len(ours)
    assert found["recorded_at"] is None
    one = answered(unloader("topology", "--allowed-cpus", str(ours[-1]), "--json"))
    assert [node["cpus"] for node in one["nodes"] if node["cpus"]] == [[ours[-1]]]
    assert shown(unloader("topology")).startswith("machine  this one")


def test_this_machine_can_be_recorded(unloader: Run, tmp_path: Path) -> None:
    """The file shows the same nodes elsewhere, and has no names of users or hosts."""
    here = answered(unloader("topology", "--record", "me.txt", "--json"))
    there = answered(unloader("topology", "--sysfs", "me.txt", "--json"))
    ours = {cpu for node in here["nodes"] for cpu in node["cpus"]}
    assert ours <= {cpu for node in there["nodes"] for cpu in node["cpus"]}
    assert os.uname().nodename not in (tmp_path / "me.txt").read_text("utf-8")


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (("--sysfs", "/nonexistent"), 3, "/nonexistent is not a folder"),
        (("--sysfs", "/usr"), 3, "/usr has no node/ and no cpu/"),
        (("--sysfs", "TREE", "--allowed-cpus", "99"), 3, "has no CPU of '99' that is on"),
        (("--sysfs", "TREE", "--allowed-cpus", "0-"), 2, "'0-' is not a list of numbers"),
        (("--sysfs", "TREE", "--numa-nodes", "7"), 3, "node 7 does not exist"),
        (("--sysfs", "TREE", "--parallelism", "0"), 2, "is neither auto nor a number"),
        (("--sysfs", "TREE", "--parallelism", "65536"), 2, "from 1 to 65535"),
        (("--sysfs", "TREE", "--near", "eth0"), 2, "--near needs the devices of this machine"),
        (("--sysfs", ""), 2, "--sysfs is empty"),
        (("--record", ""), 2, "--record is empty"),
        (("--allowed-cpus", "65535"), 3, "this process may not use CPUs 65535"),
        (("--near", "no-such-device"), 3, "no-such-device"),
        (("--record", "/nonexistent/file"), 6, "cannot be recorded"),
    ],
)
def test_what_is_not_there_is_named(
    unloader: Run, machine: Machine, arguments: tuple[str, ...], status: int, told: str
) -> None:
    """The error has the requested value and the remedy."""
    tree = machine(even(2, 2))
    done = unloader("topology", *(tree if each == "TREE" else each for each in arguments))
    assert done.returncode == status, done.stderr
    assert told in done.stderr
    assert "Next: " in done.stderr
    assert done.stdout == ""


def test_a_file_that_is_no_recording_is_refused(unloader: Run, tmp_path: Path) -> None:
    """The error names the file, and shows the unreadable line or names the missing one."""
    (tmp_path / "notes.txt").write_text("not a machine\n")
    done = unloader("topology", "--sysfs", "notes.txt")
    assert done.returncode == 3
    assert "line 1" in done.stderr
    (tmp_path / "both.txt").write_text("node/node0: x\nnode/node0/cpulist: 0\n")
    done = unloader("topology", "--sysfs", "both.txt")
    assert done.returncode == 3, done.stderr
    assert "both.txt" in done.stderr


def test_a_variable_about_this_machine_does_not_hinder(unloader: Run, machine: Machine) -> None:
    """UNLOADER_NEAR, set for all jobs of this machine, says nothing of another one."""
    tree = machine(even(2, 2))
    done = unloader("topology", "--sysfs", tree, "--json", variables={"UNLOADER_NEAR": "eth0"})
    assert answered(done)["near"] is None


def test_near_is_told_and_recorded(unloader: Run, database: str, tmp_path: Path) -> None:
    """A path means its disk; the run's manifest and the plan file keep the value of --near."""
    near = answered(unloader("topology", "--near", str(tmp_path), "--json"))["near"]
    assert near.keys() == {"name", "kind", "node", "note"}
    plan = ("plan", database, "--table", "orders", "--near", str(tmp_path), "--json")
    planned = answered(unloader(*plan, "--output", "plan.json"))
    assert planned["job"]["near"] == str(tmp_path)
    manifest = answered(unloader("run", "plan.json", "--to", "out", "--json"))
    assert manifest["options"]["near"] == str(tmp_path)


def test_plan_shows_seats_as_topology_does(unloader: Run, database: str) -> None:
    """The same table for the same workers, the node's memory in it, and the same JSON."""
    options = ("--parallelism", "1", "--split", "none")
    text = shown(unloader("plan", database, "--table", "orders", *options))
    drawn = shown(unloader("topology", "--parallelism", "1"))
    assert lines_of(text, "worker") == lines_of(drawn, "worker")
    planned = answered(unloader("plan", database, "--table", "orders", *options, "--json"))
    surveyed = answered(unloader("topology", "--parallelism", "1", "--json"))
    assert planned["seats"] == surveyed["seats"]
