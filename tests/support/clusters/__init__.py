"""Dask clusters as users start them: a scheduler and workers, each a command of its own."""
