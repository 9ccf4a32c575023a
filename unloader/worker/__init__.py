"""One work unit in a separate process: fetch, encode, write."""
