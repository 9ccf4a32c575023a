"""Runs the points of a sweep: in which order, how often, on which rows, and what came of each."""
