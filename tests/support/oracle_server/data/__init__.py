"""Content of the database: users, tables, versions of rows, rights."""
