"""Where a run's output goes: directories, standard output, named pipes.

`base` has the one protocol that a run knows, `opening` chooses the kind, each kind has its module.
"""
