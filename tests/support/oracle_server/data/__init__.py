"""What the database holds: users, tables, versions of rows, rights."""
