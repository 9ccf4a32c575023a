"""Job files: the content of a night, in TOML.

`read_job` in `grammar` reads a file and its included files into a `JobFile`: plain frozen data in
which each value has its file and line. `JobFile.values_of` returns the values for one table and one
route. Each mistake is given to the caller, who raises the first one or lists all.
"""
