"""NUMA nodes, seats on them, and a supervised process pool that sits there.

`topology` reads the machine's hardware, and `placement` turns it into seats. `affinity` binds CPUs
and memory, and `pool` keeps one process on each seat and replaces failed ones.
It needs msgspec only. It runs any importable function and knows nothing of databases.
"""
