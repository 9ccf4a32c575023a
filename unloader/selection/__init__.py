"""Which tables of a source are meant: patterns of names, held against a listing of what is there.

Everything here is pure: no connection, and no file but one of patterns. A source gives the
listing (`unloader.sources.many_tables`), and describes what was chosen. In the order of use:

    wanted = TableChoice(tables=(parse_pattern("SALES.*"),), exclude=...)      choice, patterns
    listing = list_tables(catalog)                                             sources.many_tables
    chosen = choose(wanted, listing)                                           choice
    described = describe_tables(catalog, chosen)                               sources.many_tables
    columns = unreadable_columns(table, names_of_chosen_columns), ...          problems
    problems = TableProblems.of(chosen.problems, columns, described.problems)  problems
    problems.error(), problems.script()

`choose` and `describe_tables` raise nothing for a single table: what is wrong with any of them is
a `TableProblem`, so that a user reads of all of them at once, with the grants as one script.
"""
