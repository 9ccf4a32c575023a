"""Selections of rows and columns, and the ways they take into a file."""
