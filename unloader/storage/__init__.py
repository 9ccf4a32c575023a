"""Places that a run's bytes go to: local directories, named pipes, standard output.

`base` has the protocols and `model` their types. A room that knows bytes and names: what the files
hold, which units they come from and what a manifest says is not its business.
"""
