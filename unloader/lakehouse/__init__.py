"""Tables of a lakehouse: files that a run has written become part of one, in one commit.

`base` has the protocol, `places` the names, `committing` the commit of a finished run from its
manifest alone. Each format is a room of its own, and imports its library on use.
"""
