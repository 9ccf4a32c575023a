"""Which tables of a source are meant: patterns of names, held against a listing of what is there.

Everything here is pure: no connection, no file but the one of `--tables-from`. A source gives the
listing (`unloader.sources.many_tables`), and describes what was chosen. In the order of use:

    wanted = TableChoice(tables=(parse_pattern("SALES.*"),), exclude=..., schemas=...)   choice
    listing = list_tables(catalog)                                    sources.many_tables
    chosen = choose(wanted, listing)                                  choice
    described = describe_tables(catalog, chosen.tables, chosen.unlisted)  sources.many_tables
    problems = TableProblems.of(chosen, described.problems, ...)      problems

`choose` and `describe_tables` raise nothing for a single table: what is wrong with any of them is
a `TableProblem`, so that a user reads of all of them at once, with the grants as one script.
"""
