"""Places that a run's bytes go to: local directories, named pipes, standard output.

A room that knows bytes and names. What the files hold, which units they come from and what a
manifest says is not its business.
"""
