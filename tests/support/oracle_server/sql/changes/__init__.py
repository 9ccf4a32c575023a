"""Statements that change rows, tables and rights."""
