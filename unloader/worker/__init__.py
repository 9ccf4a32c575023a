"""One work unit in a process of its own: fetch, encode, write."""
