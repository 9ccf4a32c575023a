"""The number of workers of a run: options, the load of host and database, what is asked by hand."""
