"""Job files: what a night unloads, in TOML.

`read_job` (in `grammar`) reads a file and those that it includes into a `model.JobFile`: plain
frozen data in which each value knows its file and line. `layers` says what holds for one table and
one route of it. Every mistake is handed to the caller, who takes the first one or lists all of
them. Which keys there are follows from the declared options and their scopes.
"""
