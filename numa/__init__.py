"""NUMA nodes, seats on them, and a supervised process pool that sits there.

`topology` reads the machine's hardware, and `placement` turns it into seats. `affinity` binds CPUs
and memory, `pool` runs one process on each seat, and `supervisor` replaces failed processes.
Standard library only; it runs any importable function and knows nothing of databases.
"""
