"""Dask clusters as users start them: a scheduler and workers, each its own command."""
