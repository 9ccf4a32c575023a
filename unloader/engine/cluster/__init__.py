"""More machines: the workers of a Dask cluster carry out the tasks of a run."""
