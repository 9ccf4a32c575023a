"""Places for the output of a run: local directories, object stores, named pipes, standard output.

This package handles bytes and names. It does not know which work units the files come from.
"""
