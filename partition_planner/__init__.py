"""Cut a table into work units that keep a number of workers equally busy.

A source describes a table with the types of `partition_planner.model`;
`partition_planner.planner.plan` turns the description into a `Plan`;
`partition_planner.costs.simulate` shows what that plan costs at any parallelism. Nothing here reads
a clock, a random number or a database, and nothing here knows SQL or the name of a product.
"""
