"""Which tables of a source are asked for: patterns of names, compared with a listing of the source.

A problem of a table is collected, not raised, so one error reports all of them, with the grants as
one script.
"""
