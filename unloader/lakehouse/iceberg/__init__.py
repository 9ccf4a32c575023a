"""Apache Iceberg, through pyiceberg: catalogs are configured as pyiceberg has it."""
