"""Cut a table into work units that keep a number of workers equally busy.

A source describes a table with the types of `partition_planner.model`;
`partition_planner.planner.plan` turns the description into a `Plan`;
`partition_planner.costs.simulate` shows what that plan costs at any parallelism. Same facts in,
same plan out: nothing here reads a clock, a random number or a database, and nothing here knows
SQL or the name of a product.

    from partition_planner.model import ColumnInfo, PlanLimits, RowExtent, TableInfo
    from partition_planner.planner import plan

    table = TableInfo(
        schema=None, name="events", columns=(ColumnInfo(name="id", native_type="BIGINT"),),
        bytes=4 << 30, extents=(RowExtent(first=0, last=30_000_000),),
        named_partitions=False, row_ranges=True,
    )
    for unit in plan(table, PlanLimits(parallelism=8)).units:
        print(unit.id, unit.selectors)
"""
