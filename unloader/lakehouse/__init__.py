"""Tables of a lakehouse: files that a run has written become part of one, in one commit.

`lake_formats` has the names, `table_commits` the protocol, `lake_runs` the commit of a finished run
from its manifest alone. Modules of a format import its library, so `lake_format` imports them on
use.
"""
