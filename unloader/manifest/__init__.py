"""The manifest of a run: built, read back, and files verified against it."""
