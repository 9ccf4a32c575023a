"""Keepers: processes that hold the snapshot of a run when the run itself has died."""
