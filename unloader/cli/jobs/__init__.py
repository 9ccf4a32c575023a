"""Job files on the command line: several tables, the check, a first draft and the schema."""
