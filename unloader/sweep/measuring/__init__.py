"""What a machine does while a run goes on: CPUs, disks, networks, nodes, clock and memory."""
