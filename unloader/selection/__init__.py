"""Which tables of a source are asked for: patterns of names, compared with a listing of the source.

Everything here is pure, and reads no file except a list of patterns. A source makes the listing and
describes the chosen tables (`unloader.sources.questions`). Nothing is raised for a single table:
its error is a `TableProblem`. So one error reports all of them, with the grants as one script.
"""
