"""The ways to read a part of a table, one module each. The planner decides which is used."""
